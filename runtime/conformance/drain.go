package conformance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// drainUnderLoad: a worker that is stopped again and again while it is busy
// finishes what runs, and gives back the rest untouched.
func drainUnderLoad(r *rig) {
	topic, group := r.topic()
	const busy = 200
	rounds := r.o.scale(2, 4, 100)
	l := newLedger(r)
	msgs := unkeyed("m", (rounds+2)*busy)
	r.publish(topic, msgs...)
	for range rounds {
		g := newGate(r)
		in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
			return nil, g.wait(m)
		}), limits(busy, 2*busy))
		l.awaitRunning(busy)
		in.stop()
		in.await("the drain has begun", func(s runtime.Status) bool { return s.State == runtime.StateDraining })
		g.open()
		in.stopped()
		in.counted(map[transport.Outcome]int{transport.Handled: busy})
	}
	in := r.instance().run(topic, group, l.noting(ok), limits(busy, 2*busy))
	l.awaitDone(len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	l.ranOnce()
	r.dead(topic, group, 0)
	r.nothingLeft(topic, group)
}

// shutdownIsNoFailure: an attempt that is cut off by the end of a drain is not
// counted, though it was the only one, and the message comes again.
func shutdownIsNoFailure(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	var cause atomic.Value
	in := r.instance()
	in.drainWithin(50 * time.Millisecond)
	in.run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		<-m.Context().Done()
		cause.Store(context.Cause(m.Context()))
		return nil, m.Context().Err()
	}), r.attempts(1), limits(4, 16))
	msgs := unkeyed("m", 20)
	r.publish(topic, msgs...)
	l.awaitRunning(4)
	require.ErrorIs(r, in.drain(), runtime.ErrDrainTimeout)
	require.Equal(r, transport.ErrShutdown, cause.Load(), "cause of the cancelled context")
	in.counted(map[transport.Outcome]int{transport.Interrupted: 4})
	r.comeAgain(l, topic, group, msgs)
}

// stubborn: a handler that ignores its context does not hold up a stop for
// longer than the drain; its message comes again, and what it returns in the
// end changes nothing.
func stubborn(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	g := newGate(r)
	in := r.instance()
	in.drainWithin(50 * time.Millisecond)
	in.run(topic, group, l.noting(func(*message.Message) ([]*message.Message, error) {
		<-g.ch
		return nil, errAsAsked
	}), r.attempts(1), limits(2, 16))
	msgs := unkeyed("m", 10)
	r.publish(topic, msgs...)
	l.awaitRunning(2)
	require.ErrorIs(r, in.drain(), runtime.ErrDrainTimeout)
	require.Equal(r, 2, in.status().Abandoned)
	g.open()
	l.await("the handlers have returned", func() bool { return l.running == 0 })
	r.comeAgain(l, topic, group, msgs)
}

// comeAgain checks that messages whose only attempt was interrupted are
// handled by another worker, which sees a first attempt.
func (r *rig) comeAgain(l *ledger, topic, group string, msgs []*message.Message) {
	r.Helper()
	next := r.instance().run(topic, group, l.noting(ok), r.attempts(1))
	l.awaitDone(len(msgs))
	next.stopped()
	l.onceEach(ids(msgs))
	for _, m := range msgs {
		for _, n := range l.attemptsOf(m.UUID) {
			require.Equal(r, 1, n, "an attempt of %s was counted that a stop has cut off", m.UUID)
		}
	}
	r.dead(topic, group, 0)
	r.nothingLeft(topic, group)
}
