package memory_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// A1 and A6: many publishers, several members, no faults: each message once.
func TestEachMessageOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const publishers, each, members = 50, 200, 4
		r := newRig(t, memory.Options{})
		var mu sync.Mutex
		got := map[string]int{}
		var readers, writers sync.WaitGroup
		consumers := make([]transport.Consumer, members)
		for i := range consumers {
			consumers[i] = r.open()
			readers.Go(func() {
				for {
					ds, err := consumers[i].Receive(t.Context(), 32, unbounded)
					if err != nil {
						return
					}
					mu.Lock()
					for _, d := range ds {
						got[d.ID]++
					}
					mu.Unlock()
					r.settle(consumers[i], transport.Ack, ds...)
				}
			})
		}
		for p := range publishers {
			writers.Go(func() { r.publish(fmt.Sprint(p, "-"), fmt.Sprint("key", p%7), each) })
		}
		writers.Wait()
		synctest.Wait()
		require.Equal(t, transport.Depth{}, r.depth())
		for _, c := range consumers {
			require.NoError(t, c.Close(t.Context()))
		}
		readers.Wait()
		require.Len(t, got, publishers*each)
		for id, n := range got {
			require.Equal(t, 1, n, id)
		}
		require.Equal(t, int64(publishers*each), r.broker.Acked(topicName, groupName))
		require.Equal(t, got, r.broker.Handed(topicName, groupName))
	})
}

// A2: what is received is what was published, and stays so.
func TestFidelity(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	many := message.Metadata{"": "", "empty": "", "ключ": "значение", "bytes": string(every)}
	for i := range 100 {
		many[fmt.Sprint("header", i)] = strings.Repeat("x", i)
	}
	for name, m := range map[string]*message.Message{
		"nil":        {UUID: "a"},
		"empty":      {UUID: "b", Payload: message.Payload{}, Metadata: message.Metadata{}},
		"every byte": {UUID: "c", Payload: every, Metadata: many},
		"large":      {UUID: "d", Payload: message.Payload(strings.Repeat("x", 64<<10)), Metadata: message.Metadata{transport.KeyHeader: "k"}},
	} {
		r := newRig(t, memory.Options{})
		payload, metadata := slices.Clone(m.Payload), maps.Clone(m.Metadata)
		require.NoError(t, r.pub.Publish(t.Context(), topicName, m))
		for i := range m.Payload {
			m.Payload[i] ^= 1 // the publisher has its buffers back
		}
		clear(m.Metadata)

		d := r.receive(r.open(), 1)[0]
		require.Equal(t, m.UUID, d.ID, name)
		require.Equal(t, payload == nil, d.Payload == nil, name)
		require.Equal(t, string(payload), string(d.Payload), name)
		require.Equal(t, metadata[transport.KeyHeader], d.Key, name)
		if len(metadata) == 0 {
			require.Empty(t, d.Headers, name)
		} else {
			require.Equal(t, map[string]string(metadata), d.Headers.Map(), name)
		}
		require.Equal(t, topicName, d.Topic, name)
		require.WithinDuration(t, time.Now(), d.Enqueued, time.Minute, name)
	}
}

func TestMessageWithoutIDIsNamedByItsCoordinates(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 2 { // offsets are the same in both brokers
		r := newRig(t, memory.Options{})
		r.publish("", "k", 0)
		require.NoError(t, r.pub.Publish(t.Context(), topicName, msg("", "k"), msg("", "k")))
		c := r.open()
		for _, d := range r.receiveAll(c, 2) {
			require.NotEmpty(t, d.ID)
			require.False(t, seen[d.ID], d.ID)
			seen[d.ID] = true
		}
	}
	r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) { c.StableCoordinates = false })})
	require.NoError(t, r.pub.Publish(t.Context(), topicName, msg("", "k")))
	require.Empty(t, r.receive(r.open(), 1)[0].ID)
}

// A5: every group gets all, also one that comes late.
func TestGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		group := func(name string, start transport.Start) transport.Consumer {
			return r.open(func(c *transport.ConsumerConfig) { c.Group, c.Start = name, start })
		}
		one, two := group("one", ""), group("two", transport.StartEarliest)
		r.publish("m", "k", 5)
		want := []string{"m0", "m1", "m2", "m3", "m4"}
		for _, c := range []transport.Consumer{one, two} {
			ds := r.receiveAll(c, 5)
			require.Equal(t, want, ids(ds))
			r.settle(c, transport.Ack, ds...)
		}
		late, latest := group("late", transport.StartEarliest), group("latest", transport.StartLatest)
		require.Equal(t, want, ids(r.receiveAll(late, 5)))
		r.nothing(latest)
		r.publish("n", "k", 1)
		require.Equal(t, []string{"n0"}, ids(r.receive(latest, 9)))
		require.Equal(t, []string{"n0"}, ids(r.receive(one, 9)))
	})
}

// A group's start is asked once; later openings go on where it was.
func TestStartIsForTheFirstTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		decl := transport.Declaration{Topic: topicName, Group: groupName, Start: transport.StartLatest}
		r.publish("old", "k", 1)
		require.NoError(t, r.tr.Declare(t.Context(), transport.TopologyDeclare, decl))
		r.publish("new", "k", 1)
		decl.Start = transport.StartEarliest
		require.NoError(t, r.tr.Declare(t.Context(), transport.TopologyDeclare, decl))
		c := r.open(func(c *transport.ConsumerConfig) { c.Start = transport.StartLatest })
		require.Equal(t, []string{"new0"}, ids(r.receive(c, 9)))
		r.nothing(c)
	})
}

func TestTopology(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	ctx, decl := t.Context(), transport.Declaration{Topic: topicName, Group: groupName}
	cfg := transport.ConsumerConfig{Topics: []string{topicName}, Group: groupName, Base: ctx}

	err := r.tr.Declare(ctx, transport.TopologyVerify, decl)
	require.ErrorContains(t, err, `topic "orders" does not exist`)
	require.True(t, transport.Refused(err))
	require.NoError(t, r.tr.Declare(ctx, transport.TopologyOff, decl))
	for _, mode := range []transport.Topology{transport.TopologyVerify, transport.TopologyOff} {
		cfg.Topology = mode
		_, err = r.tr.OpenConsumer(ctx, cfg)
		require.ErrorContains(t, err, `topic "orders" does not exist`, mode)
	}
	_, err = r.tr.Depth(ctx, topicName, groupName)
	require.ErrorContains(t, err, "does not exist")

	require.NoError(t, r.tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topicName}))
	require.ErrorContains(t, r.tr.Declare(ctx, transport.TopologyVerify, decl), `group "charge" of topic "orders" does not exist`)
	require.NoError(t, r.tr.Declare(ctx, transport.TopologyDeclare, decl))
	require.NoError(t, r.tr.Declare(ctx, transport.TopologyVerify, decl))

	err = r.tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: "a b"})
	require.True(t, transport.Refused(err), err)
	err = r.tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: "a b"})
	require.True(t, transport.Refused(err), err)
	for _, group := range []string{"", "a b"} {
		_, err = r.tr.OpenConsumer(ctx, transport.ConsumerConfig{Topics: []string{topicName}, Group: group, Base: ctx})
		require.True(t, transport.Refused(err), err)
	}
	_, err = r.tr.OpenConsumer(ctx, transport.ConsumerConfig{Group: groupName, Base: ctx})
	require.True(t, transport.Refused(err), err)
	var pe *transport.PublishError
	require.ErrorAs(t, r.pub.Publish(ctx, "a b", msg("m", "")), &pe)
	require.True(t, pe.Failed[0].Permanent)

	require.NoError(t, r.tr.Close(ctx))
	require.ErrorIs(t, r.tr.Declare(ctx, transport.TopologyDeclare, decl), transport.ErrClosed)
	_, err = r.tr.OpenConsumer(ctx, cfg)
	require.ErrorIs(t, err, transport.ErrClosed)
	_, err = r.tr.OpenProducer(ctx)
	require.ErrorIs(t, err, transport.ErrClosed)
	require.NoError(t, r.pub.Close(ctx))
	require.ErrorIs(t, r.pub.Publish(ctx, topicName, msg("m", "")), transport.ErrClosed)
}

func TestBoundedTopic(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{MaxMessages: 10})
	c := r.open()
	r.publish("m", "k", 8)
	var pe *transport.PublishError
	require.ErrorAs(t, r.pub.Publish(t.Context(), topicName, msg("a", "k"), msg("b", "k"), msg("c", "k")), &pe)
	require.Equal(t, []transport.PublishFailure{{Index: 2, Err: memory.ErrFull}}, pe.Failed)

	ds := r.receiveAll(c, 10)
	r.settle(c, transport.Ack, ds[1:]...)
	require.ErrorIs(t, r.pub.Publish(t.Context(), topicName, msg("c", "k")), memory.ErrFull, "the first is still there")
	r.settle(c, transport.Ack, ds[0])
	r.publish("n", "k", 10)
	require.ErrorIs(t, r.pub.Publish(t.Context(), topicName, msg("c", "k")), memory.ErrFull)
	require.Len(t, r.receiveAll(c, 10), 10)
}

func TestRetain(t *testing.T) {
	t.Parallel()
	for retain, want := range map[int]int{-1: 0, 3: 3, 0: 10} {
		r := newRig(t, memory.Options{Retain: retain})
		c := r.open()
		other := r.open(func(c *transport.ConsumerConfig) { c.Group = "other" })
		r.publish("m", "k", 10)
		r.settle(c, transport.Ack, r.receiveAll(c, 10)...)
		require.Len(t, r.broker.Messages(topicName), 10, "another group reads it")
		ds := r.receiveAll(other, 10)
		r.settle(other, transport.Ack, ds...)
		r.settle(other, transport.Ack, ds...) // of what may be gone
		require.Len(t, r.broker.Messages(topicName), want)
		r.publish("n", "k", 2)
		require.Equal(t, []string{"n0", "n1"}, ids(r.receiveAll(c, 2)), "offsets go on")
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		require.Equal(t, transport.Depth{}, r.depth())
		begin := time.Now()
		r.publish("m", "k", 5)
		<-time.After(time.Second)
		ds := r.receive(c, 4)
		require.Equal(t, transport.Depth{Ready: 1, Held: 4, Oldest: begin}, r.depth())
		require.NoError(t, c.Settle(t.Context(), []transport.Settlement{
			{Delivery: ds[0], Verdict: transport.Ack},
			{Delivery: ds[1], Verdict: transport.Delay, After: time.Minute},
			{Delivery: ds[2], Verdict: transport.Release},
			{Delivery: ds[3], Verdict: transport.Record, After: time.Minute},
		}))
		require.Equal(t, transport.Depth{Ready: 2, Delayed: 1, Held: 1, Oldest: begin}, r.depth())
		<-time.After(time.Minute)
		require.Equal(t, transport.Depth{Ready: 3, Held: 1, Oldest: begin}, r.depth())
	})
}
