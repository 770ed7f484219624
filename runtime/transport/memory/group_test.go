package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// owned counts the partitions a member has, by taking and giving back one
// message of each.
func (r *rig) owned(c transport.Consumer) int {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 1)
	defer cancel()
	ds, err := c.Receive(ctx, 1000, unbounded)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	require.NoError(r, err)
	partitions := map[int32]bool{}
	for _, d := range ds {
		partitions[d.Partition] = true
	}
	r.settle(c, transport.Release, ds...)
	return len(partitions)
}

func TestMembersSharePartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		r.publish("m", "", 8)
		var members []transport.Consumer
		shares := func(want ...int) {
			var got []int
			for _, c := range members {
				got = append(got, r.owned(c))
			}
			require.ElementsMatch(t, want, got)
		}
		for _, want := range [][]int{{4}, {2, 2}, {2, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 0}} {
			members = append(members, r.open())
			shares(want...)
		}
		for _, want := range [][]int{{1, 1, 1, 1}, {2, 1, 1}, {2, 2}, {4}} {
			require.NoError(t, members[0].Close(t.Context()))
			members = members[1:]
			shares(want...)
		}
	})
}

// A partition moves when what its owner holds of it is settled.
func TestHandOverWaitsForWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Partitions: 1, Log: true})
		old := r.open()
		r.publish("m", "k", 3)
		ds := r.receiveAll(old, 2)
		a := ds[0].Assignment
		require.NoError(t, a.Context().Err())
		left := 0
		a.OnLeave(func() { left++ })

		r.broker.Rebalance(groupName, topicName, 0)
		require.Equal(t, 1, left)
		require.True(t, a.Leaving())
		require.NoError(t, a.Context().Err(), "running handlers go on")
		r.nothing(old)
		r.settle(old, transport.Ack, ds[0])
		require.False(t, a.Revoked())
		r.settle(old, transport.Release, ds[1])
		require.True(t, a.Revoked())
		require.Equal(t, 1, left)

		again := r.receiveAll(old, 2)
		require.Equal(t, []string{"m1", "m2"}, ids(again))
		require.NotSame(t, a, again[0].Assignment)
	})
}

func TestHandOverToAnotherMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Partitions: 2})
		old := r.open()
		r.publish("m", "", 4)
		ds := r.receiveAll(old, 4)
		joined := r.open()
		r.nothing(joined)
		var leaving *transport.Assignment
		for _, d := range ds {
			if d.Assignment.Leaving() {
				leaving = d.Assignment
			}
		}
		require.NotNil(t, leaving)
		r.settle(old, transport.Ack, ds...)
		require.True(t, leaving.Revoked())
		r.publish("n", "", 2)
		require.Len(t, r.receive(old, 9), 1)
		got := r.receive(joined, 9)
		require.Len(t, got, 1)
		require.Equal(t, leaving.Partition, got[0].Partition)
	})
}

func TestHandOverRunsOutOfTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Partitions: 1, RebalanceDrain: time.Minute})
		c := r.open()
		r.publish("m", "k", 1)
		d := r.receive(c, 1)[0]
		begin := time.Now()
		r.broker.Rebalance(groupName, topicName, 0)
		again := r.receive(c, 1)[0]
		require.Equal(t, time.Minute, time.Since(begin))
		require.Equal(t, transport.ErrRevoked, context.Cause(d.Assignment.Context()))
		require.True(t, again.Redelivered)
		r.settle(c, transport.Ack, d)
		require.Equal(t, int64(1), r.depth().Held, "the old one settles nothing")
	})
}

// The heir of a partition may be gone before it has it.
func TestHeirLeavesBeforeTheHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Partitions: 2})
		c := r.open()
		r.publish("m", "", 2)
		ds := r.receiveAll(c, 2)
		heir := r.open()
		require.NoError(t, heir.Close(t.Context()))
		r.settle(c, transport.Release, ds...)
		require.Len(t, r.receiveAll(c, 2), 2)
	})
}

func TestCloseGivesBackUntouched(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memory.Options{Log: log})
			c := r.open()
			r.publish("m", "k", 4)
			ds := r.receiveAll(c, 4)
			r.settle(c, transport.Ack, ds[2])
			got := make(chan error)
			go func() {
				_, err := c.Receive(t.Context(), 1, unbounded)
				got <- err
			}()
			synctest.Wait()
			require.NoError(t, c.Close(t.Context()))
			require.NoError(t, c.Close(t.Context()))
			require.ErrorIs(t, <-got, transport.ErrClosed)
			require.True(t, ds[0].Assignment.Revoked())

			again := r.receiveAll(r.open(), 3)
			require.Equal(t, []string{"m0", "m1", "m3"}, ids(again), "what was acked ahead is kept")
			for _, d := range again {
				require.True(t, d.Redelivered)
				require.Zero(t, d.Attempts)
			}
		})
	}
}

// Shared members take from one queue side by side, as on AMQP.
func TestWorkerScope(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) { c.KeyOrder = transport.ScopeWorker })})
		one, two := r.open(), r.open()
		r.publish("m", "k", 4)
		a, b := r.receive(one, 2), r.receive(two, 2)
		require.Equal(t, []string{"m0", "m1"}, ids(a))
		require.Equal(t, []string{"m2", "m3"}, ids(b))
		require.NotSame(t, a[0].Assignment, b[0].Assignment)

		cut := errors.New("cut")
		r.broker.Cut(cut, func(c transport.ConsumerConfig) bool { return c.Name == "nobody" })
		r.settle(one, transport.Ack, a[1])
		require.NoError(t, one.Close(t.Context()))
		require.Equal(t, []string{"m0"}, ids(r.receive(two, 9)), "only what one member held comes again")
		r.settle(two, transport.Ack, b...)
		require.Equal(t, int64(1), r.depth().Held)
	})
}
