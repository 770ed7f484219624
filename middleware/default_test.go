package middleware_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func TestDefaultOrder(t *testing.T) {
	t.Parallel()
	var seen []string
	note := func(name string) message.HandlerMiddleware {
		return func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				_, timed := m.Context().Deadline()
				seen = append(seen, name+" timed="+strconv.FormatBool(timed))
				return next(m)
			}
		}
	}
	links := middleware.Default(transport.Policy{
		Wrap:    []message.HandlerMiddleware{note("wrap 1"), note("wrap 2")},
		Dedup:   note("dedup"),
		Timeout: time.Second,
		Use:     []message.HandlerMiddleware{note("use 1"), note("use 2")},
	})
	require.Len(t, links, 11, "and two around wrap")
	_, err := chain(func(*message.Message) ([]*message.Message, error) { panic("boom") }, links...)(attempt(t, "1", 5).Message())
	require.Equal(t, []string{"wrap 1 timed=false", "wrap 2 timed=false", "dedup timed=false", "use 1 timed=true", "use 2 timed=true"}, seen)
	require.EqualError(t, err, "given up after 5 attempts: panic: boom", "5 is the default")

	require.Len(t, middleware.Default(transport.Policy{}), 3, "dead letter, retry, recover")
}

// What is no failure passes through every link as it is, in both worlds.
func TestLinksPassWaitAndInterruptionUntouched(t *testing.T) {
	t.Parallel()
	p := policy(t, transport.Backoff{})
	links := map[string]message.HandlerMiddleware{
		"recover":     middleware.Recover(),
		"timeout":     middleware.Timeout(time.Nanosecond), // passed by the time the handler returns
		"retry":       middleware.Retry(p),
		"dead letter": middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{Retry: p}),
		"dedup":       newDedup(t, middleware.DedupOptions{}),
	}
	wait := fmt.Errorf("limited: %w", &transport.Wait{After: time.Nanosecond})
	for name, link := range links {
		for i, want := range []error{wait, fmt.Errorf("stop: %w", transport.ErrShutdown), fmt.Errorf("gone: %w", transport.ErrRevoked)} {
			t.Run(name+": "+want.Error(), func(t *testing.T) {
				t.Parallel()
				_, got := link(failing(want))(attempt(t, "a"+strconv.Itoa(i), 1).Message())
				require.Equal(t, want, got)
				if name == "retry" && i == 0 {
					return // it waits there, in place
				}
				_, got = link(failing(want))(plain(t.Context(), "p"+strconv.Itoa(i)))
				require.Equal(t, want, got)
			})
		}
		t.Run(name+": context", func(t *testing.T) {
			t.Parallel()
			a := attempt(t, "revoked", 9)
			_, got := link(func(*message.Message) ([]*message.Message, error) {
				a.Delivery().Assignment.Revoke()
				return nil, context.Canceled
			})(a.Message())
			require.Equal(t, context.Canceled, got)
			_, _, mark := a.End()
			require.Nil(t, mark)
		})
	}
}

// step is what a handler does in one attempt.
type step int

const (
	succeeds step = iota
	fails
	panics
	isSlow // and then fails
	asksLater
	asksWait
	asksSkip
	isPermanent
	steps
)

func (s step) run() error {
	switch s {
	case succeeds, steps:
		return nil
	case fails:
		return errBoom
	case panics:
		panic(errBoom)
	case isSlow:
		pass(time.Minute)
		return errBoom
	case asksLater:
		return later{errBoom, time.Hour}
	case asksWait:
		return &transport.Wait{After: time.Hour}
	case asksSkip:
		return skipped{errBoom}
	case isPermanent:
		return permanent{errBoom}
	}
	return nil
}

// verdict is what a message comes to.
type verdict struct {
	outcome  transport.Outcome
	reason   string // of Dead
	runs     int    // of the handler
	attempts int    // spent
}

// model is the outcome table in a few lines.
func model(script []step, attempts int) verdict {
	v := verdict{attempts: 1}
	for _, s := range script {
		v.runs++
		switch s {
		case succeeds, steps:
			v.outcome = transport.Handled
			return v
		case asksSkip:
			v.outcome = transport.Skipped
			return v
		case isPermanent:
			v.outcome, v.reason = transport.Dead, transport.ReasonPermanent
			return v
		case asksWait:
		case fails, panics, isSlow, asksLater:
			if v.attempts == attempts {
				v.outcome, v.reason = transport.Dead, transport.ReasonExhausted
				return v
			}
			v.attempts++
		}
	}
	panic("every script ends with success")
}

// engine runs a chain as the engine does, with virtual time for the waits.
func engine(rt *rapid.T, h message.HandlerFunc, d *transport.Delivery, p *transport.RetryPolicy) verdict {
	for n := 1; ; {
		a := transport.NewAttempt(d, "charge", "g", n, time.Time{})
		_, err := h(a.Message())
		_, hooks, mark := a.End()
		v := verdict{outcome: transport.Handled, attempts: n}
		dec := transport.Decision{Action: transport.ActionSkip}
		if err != nil {
			dec = p.Decide(err, n)
			switch dec.Action {
			case transport.ActionWait:
				v.outcome = transport.Retried
			case transport.ActionDead:
				v.outcome, v.reason = transport.Dead, dec.Reason
			case transport.ActionSkip:
				v.outcome = transport.Skipped
			case transport.ActionDuplicate:
				v.outcome = transport.Duplicate
			}
		}
		require.Equal(rt, v.outcome == transport.Dead, mark != nil, "marked if dead, and only then")
		if mark != nil {
			require.Equal(rt, v.reason, mark.Reason)
		}
		for _, hook := range hooks {
			require.NoError(rt, hook(context.Background(), v.outcome))
		}
		if v.outcome != transport.Retried {
			return v
		}
		if dec.Spent {
			n++
		}
		pass(dec.After)
	}
}

// C42: whatever links and policies a chain is composed of, a message has the
// attempts and the end that the outcome table says, in both worlds.
func TestComposition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, int(steps)-1), func(n int) step { return step(n) }), 0, 8).Draw(rt, "script")
		script = append(script, succeeds)
		attempts := rapid.SampledFrom([]int{transport.Unlimited, 1, 2, 3, 5}).Draw(rt, "attempts")
		mode := rapid.SampledFrom([]transport.DeadMode{transport.DeadToTopic, transport.DeadDrop}).Draw(rt, "dead letter")
		timeout := rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(rt, "timeout")
		dedup := rapid.Bool().Draw(rt, "dedup")
		want := model(script, attempts)

		bubble(t, func(t *testing.T) {
			t.Helper()
			retry := policy(t, transport.Backoff{Attempts: attempts})
			p := transport.Policy{Retry: retry, DeadLetter: transport.DeadLetter{Mode: mode, Topic: "dead"}, Timeout: timeout}
			if dedup {
				p.Dedup = newDedup(t, middleware.DedupOptions{Lease: time.Second})
			}
			runs := 0
			handler := func(m *message.Message) ([]*message.Message, error) {
				require.NoError(rt, m.Context().Err(), "a fresh context")
				require.Equal(rt, "abc", string(m.Payload), "a fresh payload")
				clear(m.Payload)
				runs++
				return nil, script[runs-1].run()
			}
			h := chain(handler, middleware.Default(p)...)
			d := delivery(t, "1", []byte("abc"), nil)
			got := engine(rt, h, d, retry)
			got.runs = runs
			require.Equal(rt, want, got)
			if dedup {
				runs = 0
				if again := engine(rt, h, d, retry).outcome; want.outcome == transport.Dead {
					require.Equal(rt, want.outcome, again, "a replayed dead letter is no duplicate")
				} else {
					require.Equal(rt, transport.Duplicate, again)
					require.Zero(rt, runs)
				}
			}

			pub := &publisher{}
			links := middleware.Default(p)
			links[0] = middleware.DeadLetter(p.DeadLetter, middleware.DeadLetterOptions{Retry: retry, Publisher: pub, Group: "g"})
			runs = 0
			ctx := context.Background()
			_, err := chain(handler, links...)(plain(ctx, "2"))
			require.NoError(rt, err)
			require.Equal(rt, want.runs, runs)
			if want.outcome != transport.Dead || mode == transport.DeadDrop {
				require.Empty(rt, pub.msgs)
				return
			}
			require.Len(rt, pub.msgs, 1)
			require.Equal(rt, want.reason, pub.msgs[0].Metadata[transport.DeadReasonHeader])
			require.Equal(rt, strconv.Itoa(want.attempts), pub.msgs[0].Metadata[transport.DeadAttemptsHeader])
		})
	})
}

func BenchmarkDefault(b *testing.B) {
	benchmarkLink(b, middleware.Default(transport.Policy{Timeout: limit})...)
}
