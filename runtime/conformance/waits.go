package conformance

import (
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// schedule: no attempt comes before its time, be it that the message waits
// here or with the broker.
func schedule(r *rig) {
	waits := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond}
	retry := r.backoff(transport.Backoff{Attempts: 4, InitialInterval: waits[0], MaxInterval: waits[2], Jitter: -1})
	for order, slack := range map[transport.RetryOrder]time.Duration{
		transport.RetryKeep:     0,
		transport.RetryOvertake: 5 * time.Millisecond, // how far our clock and the broker's may be apart
	} {
		topic, group := r.topic()
		l := newLedger(r)
		in := r.instance().run(topic, group, l.noting(func(*message.Message) ([]*message.Message, error) {
			return nil, errAsAsked
		}), func(p *transport.Policy) {
			p.Order, p.Retry, p.RetryOrder, p.MaxPark = transport.OrderKey, retry, order, time.Millisecond
		})
		msgs := keyed(10, 1)
		r.publish(topic, msgs...)
		in.awaitCounts(transport.Dead, len(msgs))
		in.stopped()
		for _, m := range msgs {
			runs := l.runsOf(m.UUID)
			require.Len(r, runs, 4, m.UUID)
			for i, wait := range waits {
				require.GreaterOrEqual(r, runs[i+1].began.Sub(runs[i].ended), wait-slack, "wait %d, retry order %s", i+1, order)
			}
		}
		r.dead(topic, group, len(msgs))
	}
}

// herd: what fails at the same time does not come back at the same time.
func herd(r *rig) {
	topic, group := r.topic()
	n := r.o.scale(500, 1000, 10_000)
	const initial, buckets = 400 * time.Millisecond, 10
	l := newLedger(r)
	var mu sync.Mutex
	planned := map[string]time.Duration{}
	note := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := next(m)
			if w, ok := errors.AsType[*transport.Wait](err); ok {
				mu.Lock()
				defer mu.Unlock()
				planned[transport.AttemptFrom(m.Context()).Delivery().ID] = w.After
			}
			return out, err
		}
	}
	retry := r.backoff(transport.Backoff{Attempts: 2, InitialInterval: initial, MaxInterval: initial, Jitter: 1})
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		if transport.AttemptFrom(m.Context()).Number() == 1 {
			return nil, errAsAsked
		}
		return nil, nil
	}), limits(64, 4*n), func(p *transport.Policy) {
		p.Retry, p.Wrap = retry, []message.HandlerMiddleware{note}
	})
	msgs := unkeyed("m", n)
	r.publish(topic, msgs...)
	l.awaitDone(n)
	in.awaitCounts(transport.Handled, n)
	in.stopped()
	var spread [buckets]int
	for _, m := range msgs {
		wait := planned[m.UUID]
		require.True(r, wait >= initial && wait <= 2*initial, "wait of %v", wait)
		spread[min(int((wait-initial)*buckets/initial), buckets-1)]++
		runs := l.runsOf(m.UUID)
		require.Len(r, runs, 2, m.UUID)
		require.GreaterOrEqual(r, runs[1].began.Sub(runs[0].ended), wait, "%s came before its time", m.UUID)
	}
	for _, some := range spread {
		require.LessOrEqual(r, some, 2*n/buckets, "waits within a tenth of the time over which they are spread: %v", spread)
	}
}

// stopInBackoff: a message that waits for its next attempt does not hold up
// a stop, stays with the broker, and its attempts with it where they are kept.
func stopInBackoff(r *rig) {
	for _, order := range []transport.RetryOrder{transport.RetryKeep, transport.RetryOvertake} {
		topic, group := r.topic()
		l := newLedger(r)
		change := func(p *transport.Policy) { p.RetryOrder, p.MaxPark = order, time.Millisecond }
		in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "soon" {
				return nil, handlers.RetryAfter(errAsAsked, time.Second)
			}
			return nil, handlers.RetryAfter(errAsAsked, 24*time.Hour)
		}), byKey, change)
		r.publish(topic, msg("soon", "a"), msg("late", "b"))
		in.await("both have failed", func(s runtime.Status) bool { return s.Count(transport.Retried) == 2 })
		in.stopped()
		in.counted(map[transport.Outcome]int{transport.Retried: 2})
		r.dead(topic, group, 0)

		next := r.instance().run(topic, group, l.noting(ok), byKey, change)
		l.await("the message that waited", func() bool { return l.done["soon"] == 1 })
		next.stopped()
		want := []int{1, 1}
		if r.caps.Attempts == transport.KeepDurable || r.caps.Attempts == transport.KeepAfterDelay && order == transport.RetryOvertake && r.caps.DurableDelay {
			want[1] = 2
		}
		require.Equal(r, want, l.attemptsOf("soon"), "attempts of a message that waited, retry order %s", order)
		r.dead(topic, group, 0)
	}
}
