package conformance

import (
	"strings"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// prefetch: with handlers that do not return, no more is taken than may be
// held, and never do more run than are allowed to.
func prefetch(r *rig) {
	topic, group := r.topic()
	const concurrency, prefetch = 2, 10
	l := newLedger(r)
	g := newGate(r)
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		return nil, g.wait(m)
	}), limits(concurrency, prefetch))
	msgs := unkeyed("m", r.o.scale(100, 200, 10_000))
	r.publish(topic, msgs...)
	const step = prefetch / 4 // a consumer does not pull for less than that
	in.await("as much is held as may be", func(s runtime.Status) bool { return s.InFlight > prefetch-step && s.Running >= concurrency })
	r.rest(r.o.Quiet)
	s := in.status()
	require.LessOrEqual(r, s.InFlight, prefetch, "in flight")
	require.Equal(r, concurrency, s.Running, "running")
	require.Equal(r, int64(s.InFlight), s.Received, "received")
	if r.caps.Depth {
		ctx, cancel := r.within()
		defer cancel()
		d, err := in.tr.Depth(ctx, topic, group) // its own: not every broker tells what others hold
		require.NoError(r, err)
		require.LessOrEqual(r, d.Held, int64(prefetch), "held, as the broker says")
		require.Equal(r, int64(len(msgs)), d.Ready+d.Delayed+d.Held, "depth")
	}
	g.open()
	l.awaitDone(len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	require.LessOrEqual(r, l.most, concurrency, "handlers at once")
}

// prefetchBytes is the same for bytes; one message that is larger than all
// of them is let in alone.
func prefetchBytes(r *rig) {
	topic, group := r.topic()
	const limit = 16 << 10
	l := newLedger(r)
	in := r.instance()
	var most, beside atomic.Int64
	in.run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		s := in.status()
		if len(m.Payload) > limit {
			beside.Store(max(beside.Load(), int64(s.InFlight)-1))
			return nil, nil
		}
		most.Store(max(most.Load(), s.InFlightBytes))
		return nil, nil
	}), limits(1, 64), func(p *transport.Policy) { p.PrefetchBytes = limit })
	msgs := unkeyed("m", 60)
	for i, m := range msgs {
		size := 1000
		if i%10 == 5 {
			size = 3 * limit
		}
		m.Payload = message.Payload(strings.Repeat("x", size))
	}
	r.publish(topic, msgs...)
	l.awaitDone(len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	require.LessOrEqual(r, most.Load(), int64(limit), "bytes in flight")
	require.Zero(r, beside.Load(), "messages in flight beside one that is larger than all of prefetch_bytes")
}

// fairness: a topic whose handlers all hang or fail does not hold up another
// one of the same worker.
func fairness(r *rig) {
	sick, sickGroup := r.topic()
	well, wellGroup := r.topic()
	l := newLedger(r)
	g := newGate(r)
	in := r.instance()
	n := r.o.scale(100, 200, 5000)
	var healed atomic.Bool
	in.consume("sick", sick, sickGroup, l.noting(func(m *message.Message) ([]*message.Message, error) {
		switch {
		case healed.Load():
			return nil, nil
		case checksum(m.UUID)%2 == 0:
			return nil, errAsAsked
		default:
			return nil, g.wait(m)
		}
	}), r.attempts(transport.Unlimited))
	in.consume("well", well, wellGroup, l.noting(ok))
	in.start()
	bad, good := unkeyed("sick", 100), unkeyed("well", n)
	r.publish(sick, bad...)
	in.await("the other topic is stuck", func(s runtime.Status) bool { return s.Running == 8 })
	r.publish(well, good...)
	l.awaitDone(n)
	require.Zero(r, in.count(transport.Handled), "of the topic that is stuck")
	healed.Store(true)
	g.open()
	l.awaitDone(n + len(bad))
	in.stopped()
	l.onceEach(append(ids(bad), ids(good)...))
}
