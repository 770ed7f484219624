package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

var errFault = errors.New("fault")

func TestFaultsStrikeTheirCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	c := r.open()
	r.publish("m", "k", 4)
	d := r.receive(c, 1)[0]
	ctx := t.Context()
	cfg := transport.ConsumerConfig{Topics: []string{topicName}, Group: "other", Base: ctx}

	for op, call := range map[memory.Op]func() error{
		memory.OpDeclare: func() error {
			return r.tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName})
		},
		memory.OpOpenConsumer: func() error { _, err := r.tr.OpenConsumer(ctx, cfg); return err },
		memory.OpOpenProducer: func() error { _, err := r.tr.OpenProducer(ctx); return err },
		memory.OpPublish:      func() error { return r.pub.Publish(ctx, topicName, msg("x", "k")) },
		memory.OpReceive:      func() error { _, err := c.Receive(ctx, 1, unbounded); return err },
		memory.OpSettle:       func() error { return c.Settle(ctx, settlements(transport.Record, d)) },
		memory.OpDepth:        func() error { _, err := r.tr.Depth(ctx, topicName, groupName); return err },
	} {
		remove := r.broker.Inject(memory.Fault{Op: op, Times: 2, Err: transport.Refuse(errFault)})
		for range 2 {
			err := call()
			require.ErrorIs(t, err, errFault, op)
			require.True(t, transport.Refused(err), op)
		}
		require.NoError(t, call(), op)
		remove()
		remove()

		remove = r.broker.Inject(memory.Fault{Op: op, Err: errFault, Topic: "another", Group: "another"})
		require.NoError(t, call(), op)
		remove()

		remove = r.broker.Inject(memory.Fault{Op: op, Err: errFault})
		for range 3 {
			require.ErrorIs(t, call(), errFault, op)
		}
		remove()
		require.NoError(t, call(), op)
	}
}

func TestFaultHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		remove := r.broker.Inject(memory.Fault{Op: memory.OpPublish, Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, r.pub.Publish(ctx, topicName, msg("m", "")), context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begin))
		require.Empty(t, r.broker.Messages(topicName))

		published := make(chan error)
		go func() { published <- r.pub.Publish(t.Context(), topicName, msg("m", "")) }()
		synctest.Wait()
		remove()
		require.NoError(t, <-published)
		require.Len(t, r.broker.Messages(topicName), 1)
	})
}

func TestFaultReachesAReceiveThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		got := make(chan error)
		go func() {
			_, err := c.Receive(t.Context(), 1, unbounded)
			got <- err
		}()
		synctest.Wait()
		r.broker.Inject(memory.Fault{Op: memory.OpReceive, Group: groupName, Times: 1, Err: errFault})
		require.ErrorIs(t, <-got, errFault)
	})
}

func TestFaultOfSomeMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	r.broker.Inject(memory.Fault{
		Op: memory.OpPublish, Topic: topicName, Times: 1, Err: errFault, Permanent: true,
		Match: func(m *message.Message) bool { return m.UUID == "b" },
	})
	err := r.pub.Publish(t.Context(), topicName, msg("a", "k"), msg("b", "k"), msg("c", "k"))
	var pe *transport.PublishError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, []transport.PublishFailure{{Index: 1, Err: errFault, Permanent: true}}, pe.Failed)
	got := r.broker.Messages(topicName)
	require.Len(t, got, 2)
	require.Equal(t, "a", got[0].UUID)
	require.Equal(t, "c", got[1].UUID)
}

func TestLostConfirmation(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	r.broker.Inject(memory.Fault{Op: memory.OpPublish, Late: true, Times: 1, Err: errFault})
	require.ErrorIs(t, r.pub.Publish(t.Context(), topicName, msg("a", "")), errFault)
	require.Len(t, r.broker.Messages(topicName), 1)
}

func TestCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 2)
		ds := r.receiveAll(c, 2)
		got := make(chan error)
		go func() {
			_, err := c.Receive(t.Context(), 1, unbounded)
			got <- err
		}()
		synctest.Wait()
		r.broker.Cut(errFault, nil)
		require.ErrorIs(t, <-got, errFault)
		_, err := c.Receive(t.Context(), 1, unbounded)
		require.ErrorIs(t, err, errFault, "it stays so")
		require.Equal(t, transport.ErrRevoked, context.Cause(ds[0].Assignment.Context()))
		require.Equal(t, []string{"m0", "m1"}, ids(r.receiveAll(r.open(), 2)))
	})
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 2})
	c := r.open()
	r.publish("m", "", 2)
	ds := r.receiveAll(c, 2)
	r.broker.Revoke(groupName, topicName, ds[0].Partition)
	r.broker.Revoke(groupName, topicName, 99)
	r.broker.Revoke("nobody", topicName, 0)
	require.True(t, ds[0].Assignment.Revoked())
	require.False(t, ds[1].Assignment.Leaving())
	again := r.receive(c, 9)
	require.Equal(t, ids(ds[:1]), ids(again))
	require.True(t, again[0].Redelivered)
	require.False(t, again[0].Assignment.Leaving())
}

func TestDuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 2)
		d := r.receive(c, 1)[0]
		duplicate := func(offset int64) bool {
			return r.broker.Duplicate(groupName, topicName, d.Partition, offset)
		}
		require.True(t, duplicate(d.Offset))
		require.False(t, duplicate(d.Offset+1), "not handed out")
		require.False(t, duplicate(d.Offset+2), "not published")
		ds := r.receive(c, 9)
		require.Equal(t, []string{"m0", "m1"}, ids(ds))
		require.True(t, ds[0].Redelivered)
		require.Equal(t, d.Offset, ds[0].Offset)
		require.Equal(t, int64(2), r.depth().Held)

		require.True(t, duplicate(d.Offset))
		r.settle(c, transport.Ack, d)
		r.nothing(c) // it was settled before it came
		require.False(t, duplicate(d.Offset))
		r.settle(c, transport.Ack, ds...)
		require.Equal(t, transport.Depth{}, r.depth())
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 1})
	var events []memory.Event
	remove := r.broker.Observe(func(e memory.Event) { events = append(events, e) })
	c := r.open()
	r.publish("m", "k", 1)
	d := r.receive(c, 1)[0]
	r.settle(c, transport.Record, d)
	r.settle(c, transport.Ack, d)
	r.settle(c, transport.Ack, d)
	remove()
	r.publish("n", "k", 1)
	at := memory.Event{Topic: topicName, ID: "m0"}
	with := func(kind memory.EventKind, group string, v transport.Verdict) memory.Event {
		e := at
		e.Kind, e.Group, e.Verdict = kind, group, v
		return e
	}
	require.Equal(t, []memory.Event{
		with(memory.Published, "", 0),
		with(memory.Delivered, groupName, 0),
		with(memory.Settled, groupName, transport.Record),
		with(memory.Settled, groupName, transport.Ack),
	}, events)
}
