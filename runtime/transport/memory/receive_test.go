package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

func TestOrderOfKeysAndPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	for i := range 100 {
		for key := range 20 {
			require.NoError(t, r.pub.Publish(t.Context(), topicName, msg(fmt.Sprint(i), fmt.Sprint("key", key))))
		}
	}
	next, offsets, home := map[string]int{}, map[int32]int64{}, map[string]int32{}
	for _, d := range r.receiveAll(r.open(), 2000) {
		require.Equal(t, fmt.Sprint(next[d.Key]), d.ID, d.Key)
		next[d.Key]++
		require.Equal(t, offsets[d.Partition], d.Offset)
		offsets[d.Partition]++
		if p, ok := home[d.Key]; ok {
			require.Equal(t, p, d.Partition)
		}
		home[d.Key] = d.Partition
	}
	require.Len(t, next, 20)
	require.Len(t, offsets, 4, "20 keys are spread over all partitions")
}

func TestMessagesWithoutKeyAreSpread(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 3})
	r.publish("m", "", 9)
	n := map[int32]int{}
	for _, d := range r.receiveAll(r.open(), 9) {
		n[d.Partition]++
	}
	require.Equal(t, map[int32]int{0: 3, 1: 3, 2: 3}, n)
}

func TestByteCredit(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 1})
	c := r.open()
	for i, size := range []int{100, 100, 1000, 10} {
		m := &message.Message{UUID: fmt.Sprint(i), Payload: make([]byte, size)}
		require.NoError(t, r.pub.Publish(t.Context(), topicName, m))
	}
	receive := func(maxBytes int64) ([]string, error) {
		ds, err := c.Receive(t.Context(), 9, maxBytes)
		var sum int64
		for _, d := range ds {
			sum += d.Size()
		}
		require.LessOrEqual(t, sum, maxBytes)
		return ids(ds), err
	}
	_, err := receive(100)
	require.Equal(t, transport.NeedBytes(101), err)
	got, err := receive(101)
	require.NoError(t, err)
	require.Equal(t, []string{"0"}, got)
	got, err = receive(1000)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, got, "what fits before the large one")
	_, err = receive(1000)
	require.Equal(t, transport.NeedBytes(1001), err)
	got, err = receive(1012)
	require.NoError(t, err)
	require.Equal(t, []string{"2", "3"}, got)
}

// A message too large for the credit is not passed by those of other
// partitions for ever.
func TestByteCreditIsFair(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 2})
	c := r.open()
	large := &message.Message{UUID: "large", Payload: make([]byte, 1000)}
	require.NoError(t, r.pub.Publish(t.Context(), topicName, large))
	for i := range 10 {
		require.NoError(t, r.pub.Publish(t.Context(), topicName, msg(fmt.Sprint(i), "")))
	}
	var err error
	for range 20 {
		if _, err = c.Receive(t.Context(), 1, 100); err != nil {
			break
		}
	}
	require.Equal(t, transport.NeedBytes(1005), err)
}

func TestWithoutByteWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) { c.ByteWindow = false })})
	r.publish("m", "k", 5)
	ds, err := r.open().Receive(t.Context(), 5, 1)
	require.NoError(t, err)
	require.Len(t, ds, 5)
}

func TestLimitGoesRound(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 3})
	r.publish("m", "", 30)
	c := r.open()
	seen := map[int32]bool{}
	for range 3 {
		for _, d := range r.receive(c, 2) {
			seen[d.Partition] = true
		}
	}
	require.Len(t, seen, 3, "no partition waits for another to be empty")
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Partitions: 2})
		c := r.open()
		r.publish("m", "", 4)
		ds := r.receiveAll(c, 4)
		a, b := ds[0].Assignment, ds[len(ds)-1].Assignment
		require.NotSame(t, a, b)
		c.Pause(a)
		c.Pause(a)
		r.publish("n", "", 4)
		for _, d := range r.receiveAll(c, 2) {
			require.Same(t, b, d.Assignment)
		}
		r.nothing(c)

		got := make(chan int)
		go func() {
			ds, _ := c.Receive(t.Context(), 9, unbounded)
			got <- len(ds)
		}()
		synctest.Wait()
		c.Resume(a)
		c.Resume(a)
		require.Equal(t, 2, <-got)
		require.False(t, a.Leaving(), "a pause ends nothing")
	})
}

func TestReceiveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.nothing(c)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.publish("m", "k", 1)
		_, err := c.Receive(ctx, 1, unbounded)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, r.receive(c, 1), 1, "the consumer is still good")
	})
}

func TestUnstableCoordinates(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) {
		c.StableCoordinates = false
		c.KeyOrder = transport.ScopeWorker
	})})
	r.publish("m", "k", 3)
	for session := range uint64(2) {
		c := r.open()
		ds := r.receiveAll(c, 3)
		for i, d := range ds {
			require.Equal(t, session+1, d.Session)
			require.Equal(t, int64(i+1), d.Offset, "a delivery tag")
			require.Equal(t, session > 0, d.Redelivered)
		}
		require.NoError(t, c.Close(t.Context()))
	}
}
