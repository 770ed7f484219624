package middleware_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func TestRetryAsksTheEngine(t *testing.T) {
	t.Parallel()
	p := policy(t, transport.Backoff{Attempts: 3, InitialInterval: 200 * time.Millisecond, Jitter: 0.5})
	asked := &transport.Wait{After: time.Hour}
	for name, c := range map[string]struct {
		err     error
		attempt int
		check   func(t *testing.T, got error)
	}{
		"first failure": {errBoom, 1, func(t *testing.T, got error) {
			t.Helper()
			w, ok := errors.AsType[*transport.Wait](got)
			require.True(t, ok)
			require.True(t, w.Spent)
			require.Equal(t, errBoom, w.Err)
			require.GreaterOrEqual(t, w.After, 200*time.Millisecond)
			require.LessOrEqual(t, w.After, 300*time.Millisecond)
		}},
		"retry after": {later{errBoom, time.Minute}, 2, func(t *testing.T, got error) {
			t.Helper()
			require.Equal(t, &transport.Wait{After: time.Minute, Spent: true, Err: later{errBoom, time.Minute}}, got)
		}},
		"used up": {errBoom, 3, func(t *testing.T, got error) {
			t.Helper()
			require.Equal(t, &transport.Exhausted{Attempts: 3, Err: errBoom}, got)
		}},
		"retry after, used up": {later{errBoom, time.Minute}, 3, func(t *testing.T, got error) {
			t.Helper()
			require.Equal(t, &transport.Exhausted{Attempts: 3, Err: later{errBoom, time.Minute}}, got)
		}},
		"permanent":         {permanent{errBoom}, 1, untouched(permanent{errBoom})},
		"skip":              {skipped{errBoom}, 1, untouched(skipped{errBoom})},
		"already":           {transport.Already, 1, untouched(transport.Already)},
		"wait":              {asked, 1, untouched(asked)},
		"wait, used up":     {asked, 3, untouched(asked)},
		"exhausted further": {&transport.Exhausted{Attempts: 9, Err: errBoom}, 1, untouched(&transport.Exhausted{Attempts: 9, Err: errBoom})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := middleware.Retry(p)(failing(c.err))(attempt(t, "1", c.attempt).Message())
			c.check(t, err)
		})
	}
}

func untouched(want error) func(*testing.T, error) {
	return func(t *testing.T, got error) {
		t.Helper()
		require.Equal(t, want, got)
	}
}

// D1: waits follow the schedule, whatever the policy and however many attempts.
func TestRetrySchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := transport.Backoff{
			Attempts:        transport.Unlimited,
			InitialInterval: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(rt, "initial")),
			Multiplier:      rapid.Float64Range(1, 100).Draw(rt, "multiplier"),
			Jitter:          rapid.Float64Range(0.001, 1).Draw(rt, "jitter"),
		}
		b.MaxInterval = time.Duration(rapid.Int64Range(int64(b.InitialInterval), int64(100*time.Hour)).Draw(rt, "max"))
		h := middleware.Retry(policy(t, b))(failing(errBoom))
		d := delivery(t, "1", nil, nil)
		last := time.Duration(0)
		for _, n := range []int{1, 2, 3, 5, 8, 40, 64, 300, 1_000_000, math.MaxInt32} {
			_, err := h(transport.NewAttempt(d, "charge", "g", n, time.Time{}).Message())
			w, ok := errors.AsType[*transport.Wait](err)
			require.True(rt, ok)
			base := min(float64(b.InitialInterval)*math.Pow(b.Multiplier, float64(min(n, 256)-1)), float64(b.MaxInterval))
			require.GreaterOrEqual(rt, float64(w.After), base*0.999, "attempt %d", n) // each step is cut to whole nanoseconds
			require.LessOrEqual(rt, float64(w.After), base*(1+b.Jitter)*1.001, "attempt %d", n)
			require.GreaterOrEqual(rt, float64(w.After), float64(last)/(1+b.Jitter)*0.999, "bases never shrink")
			last = w.After
		}
	})
}

func TestRetryInPlaceWaitsAndRunsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, transport.Backoff{Attempts: 4, InitialInterval: time.Second, Multiplier: 3, MaxInterval: 5 * time.Second, Jitter: -1})
		start := time.Now()
		var at []time.Duration
		_, err := middleware.Retry(p)(func(*message.Message) ([]*message.Message, error) {
			at = append(at, time.Since(start))
			return nil, errBoom
		})(message.NewMessageWithContext(t.Context(), "1", nil))
		require.Equal(t, &transport.Exhausted{Attempts: 4, Err: errBoom}, err)
		require.Equal(t, []time.Duration{0, time.Second, 4 * time.Second, 9 * time.Second}, at)
		require.Equal(t, 9*time.Second, time.Since(start), "no wait after the last")
	})
}

// C8: what a failed attempt did to the message is gone in the next.
func TestRetryInPlaceGivesEachAttemptTheMessageAsItArrived(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]message.Payload{"some": message.Payload("abc"), "empty": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				msg := message.NewMessageWithContext(t.Context(), "1", append(payload[:0:0], payload...))
				msg.Metadata.Set("k", "v")
				runs := 0
				_, err := middleware.Retry(policy(t, transport.Backoff{}))(func(m *message.Message) ([]*message.Message, error) {
					runs++
					require.Same(t, msg, m, "so that its Ack is the broker's")
					require.Equal(t, "1", m.UUID)
					require.Equal(t, payload, m.Payload)
					require.Equal(t, message.Metadata{"k": "v"}, m.Metadata)
					require.Equal(t, t.Context(), m.Context())
					clear(m.Payload)
					m.UUID, m.Payload = "2", append(m.Payload, 'x')
					m.Metadata.Set("k", "other")
					m.Metadata.Set("more", "x")
					m.SetContext(context.Background())
					if runs < 4 {
						return nil, errBoom
					}
					return nil, nil
				})(msg)
				require.NoError(t, err)
				require.Equal(t, 4, runs)
			})
		})
	}
}

// D5: shutdown ends the waiting at once, and is no failure.
func TestRetryInPlaceStopsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, transport.Backoff{InitialInterval: 10 * time.Minute, MaxInterval: time.Hour})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(transport.ErrShutdown) })
		start, runs := time.Now(), 0
		_, err := middleware.Retry(p)(func(*message.Message) ([]*message.Message, error) {
			runs++
			return nil, errBoom
		})(message.NewMessageWithContext(ctx, "1", nil))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errBoom)
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, 1, runs)
	})
}

func TestRetryInPlaceOtherAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := func(errs ...error) (runs int, took time.Duration, err error) {
			start := time.Now()
			p := policy(t, transport.Backoff{Attempts: 2, InitialInterval: time.Second, Jitter: -1})
			_, err = middleware.Retry(p)(func(*message.Message) ([]*message.Message, error) {
				runs++
				return nil, errs[runs-1]
			})(message.NewMessageWithContext(t.Context(), "1", nil))
			return runs, time.Since(start), err
		}
		runs, took, err := run(permanent{errBoom})
		require.Equal(t, permanent{errBoom}, err)
		require.Equal(t, 1, runs)
		require.Zero(t, took)

		for _, e := range []error{skipped{errBoom}, transport.Already} {
			_, _, err = run(e)
			require.NoError(t, err, "acked")
		}

		_, took, err = run(later{errBoom, time.Minute}, nil)
		require.NoError(t, err)
		require.Equal(t, time.Minute, took)

		wait := &transport.Wait{After: time.Hour}
		runs, took, err = run(wait, wait, wait, errBoom, errBoom)
		require.Equal(t, &transport.Exhausted{Attempts: 2, Err: errBoom}, err)
		require.Equal(t, 5, runs, "what is not spent does not count")
		require.Equal(t, 3*time.Hour+time.Second, took)
	})
}

func TestRetryUnderWatermillsRouter(t *testing.T) {
	t.Parallel()
	runs := 0
	publish := watermillRouter(t, func(*message.Message) ([]*message.Message, error) {
		if runs++; runs < 3 {
			return nil, errBoom
		}
		return nil, nil
	}, middleware.Retry(policy(t, transport.Backoff{InitialInterval: time.Millisecond})))
	msg := message.NewMessage("1", nil)
	publish(msg)
	require.Equal(t, 3, runs)
}

func BenchmarkRetry(b *testing.B) { benchmarkLink(b, middleware.Retry(policy(b, transport.Backoff{}))) }
