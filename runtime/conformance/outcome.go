package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

// fate is what a handler does with a message, and what that has to come to on
// every broker, with up to four attempts.
type fate struct {
	name     string
	do       func(attempt int, m *message.Message) error
	outcome  transport.Outcome
	attempts int
}

func fates() []fate {
	return []fate{
		{"well", func(int, *message.Message) error { return nil }, transport.Handled, 1},
		{"fails-once", failing(1), transport.Handled, 2},
		{"fails-thrice", failing(3), transport.Handled, 4},
		{"fails-always", failing(1 << 30), transport.Dead, 4},
		{"later", func(n int, _ *message.Message) error {
			if n == 1 {
				return handlers.RetryAfter(errAsAsked, 30*time.Millisecond)
			}
			return nil
		}, transport.Handled, 2},
		{"permanent", func(int, *message.Message) error { return handlers.Permanent(errAsAsked) }, transport.Dead, 1},
		{"permanent-later", func(n int, _ *message.Message) error {
			if n == 1 {
				return errAsAsked
			}
			return handlers.Permanent(errAsAsked)
		}, transport.Dead, 2},
		{"panics", func(n int, _ *message.Message) error {
			if n == 1 {
				panic("at first")
			}
			return nil
		}, transport.Handled, 2},
		{"skipped", func(int, *message.Message) error { return handlers.Skip("not ours") }, transport.Skipped, 1},
		{"times-out", func(n int, m *message.Message) error {
			if n == 1 {
				<-m.Context().Done()
				return m.Context().Err()
			}
			return nil
		}, transport.Handled, 2},
		{"emits", func(n int, m *message.Message) error {
			if err := handlers.Emit(m.Context(), "", "receipt"); n > 1 || err != nil {
				return err
			}
			return errAsAsked // and nothing is emitted
		}, transport.Handled, 2},
		{"emits-in-vain", func(_ int, m *message.Message) error {
			return handlers.Emit(m.Context(), "no such name", "receipt")
		}, transport.Dead, 1},
	}
}

func failing(times int) func(int, *message.Message) error {
	return func(n int, _ *message.Message) error {
		if n <= times {
			return errAsAsked
		}
		return nil
	}
}

// sameOutcome: the same handler, policies and messages come to the same set
// of ids, outcomes and attempts. The set is computed here, from no broker.
func sameOutcome(r *rig) {
	for seed := range r.o.scale(1, 2, 10) {
		r.outcomesOf(seed)
	}
}

func (r *rig) outcomesOf(seed int) {
	r.Helper()
	random := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // repeats what a seed says, from 0 on
	topic, group := r.topic()
	to := r.name("receipts")
	r.declare(transport.Declaration{Topic: to, Group: "reader-" + group})
	all, does := fates(), map[string]func(int, *message.Message) error{}
	var msgs []*message.Message
	var want, wantDead []string
	receipts := 0
	for i := range 150 {
		f := all[random.IntN(len(all))]
		m := msg(fmt.Sprintf("%s-%d", f.name, i), fmt.Sprint("k", random.IntN(40)))
		does[m.UUID] = f.do
		msgs = append(msgs, m)
		want = append(want, fmt.Sprint(m.UUID, " ", f.outcome, " ", f.attempts))
		if f.outcome == transport.Dead {
			wantDead = append(wantDead, fmt.Sprint(m.UUID, " ", f.attempts))
		}
		if f.name == "emits" {
			receipts++
		}
		if f.outcome == transport.Handled && random.IntN(4) == 0 { // behind it in the same lane
			msgs = append(msgs, &message.Message{UUID: m.UUID, Payload: m.Payload, Metadata: m.Metadata})
			want = append(want, fmt.Sprint(m.UUID, " ", transport.Duplicate, " ", 1))
		}
	}

	var mu sync.Mutex
	var got []string
	note := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			a := transport.AttemptFrom(m.Context())
			id, n := a.Delivery().ID, a.Number()
			transport.OnSettle(a, func(_ context.Context, o transport.Outcome) error {
				if o != transport.Retried && o != transport.Waiting {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, fmt.Sprint(id, " ", o, " ", n))
				}
				return nil
			})
			return next(m)
		}
	}
	in := r.instance().run(topic, group, func(m *message.Message) ([]*message.Message, error) {
		return nil, does[m.UUID](transport.AttemptFrom(m.Context()).Number(), m)
	}, byKey, limits(16, 1024), r.attempts(4), r.dedup(r.store(), ""), func(p *transport.Policy) {
		p.PublishTo, p.Timeout = to, 200*time.Millisecond
		p.Wrap = []message.HandlerMiddleware{note}
	})
	r.publish(topic, msgs...)
	r.eventually("all have come to their end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= len(want)
	}, func() any { return in.status() })
	in.stopped()
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(r, want, got, "ids, outcomes and attempts")
	var gotDead []string
	for _, d := range r.dead(topic, group, len(wantDead)) {
		gotDead = append(gotDead, d.ID+" "+d.Headers.Get(transport.DeadAttemptsHeader))
	}
	require.ElementsMatch(r, wantDead, gotDead, "dead letters and their attempts")
	r.read(to, "reader-"+group, receipts)
	r.nothingLeft(topic, group)
}
