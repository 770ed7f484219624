package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

func TestReleaseKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 6)
		ds := r.receiveAll(c, 4)
		r.settle(c, transport.Release, ds[3], ds[1], ds[2])
		again := r.receiveAll(c, 5)
		require.Equal(t, []string{"m1", "m2", "m3", "m4", "m5"}, ids(again))
		for i, d := range again {
			require.Equal(t, i < 3, d.Redelivered, d.ID)
			require.Zero(t, d.Attempts, d.ID)
		}
		require.False(t, ds[0].Redelivered)
		r.nothing(c)
	})
}

func TestDelayComesWhenDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 3)
		ds := r.receiveAll(c, 3)
		begin := time.Now()
		first := begin.Add(-time.Hour)
		require.NoError(t, c.Settle(t.Context(), []transport.Settlement{
			{Delivery: ds[0], Verdict: transport.Delay, After: time.Hour, Attempts: 2, FirstFailure: first, LastError: "timeout"},
			{Delivery: ds[1], Verdict: transport.Delay, After: time.Minute, Attempts: 1},
			{Delivery: ds[2], Verdict: transport.Delay, After: time.Minute, Attempts: 1},
		}))
		require.Equal(t, []string{"m1", "m2"}, ids(r.receive(c, 9)))
		require.Equal(t, time.Minute, time.Since(begin))
		d := r.receive(c, 9)[0]
		require.Equal(t, time.Hour, time.Since(begin))
		require.Equal(t, "m0", d.ID)
		require.Equal(t, 2, d.Attempts)
		require.Equal(t, first, d.FirstFailure)
		require.Equal(t, "timeout", d.LastError)
		require.True(t, d.NotBefore.IsZero(), "it is due")
	})
}

// A delay that is set while Receive waits wakes it in time.
func TestDelayWhileReceiveWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 1)
		d := r.receive(c, 1)[0]
		got := make(chan []*transport.Delivery)
		go func() {
			ds, _ := c.Receive(t.Context(), 1, unbounded)
			got <- ds
		}()
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: d, Verdict: transport.Delay, After: time.Minute}}))
		require.Equal(t, []string{"m0"}, ids(<-got))
		require.Equal(t, time.Minute, time.Since(begin))
	})
}

func TestReleaseWhileReceiveWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 1)
		d := r.receive(c, 1)[0]
		got := make(chan []*transport.Delivery)
		go func() {
			ds, _ := c.Receive(t.Context(), 1, unbounded)
			got <- ds
		}()
		synctest.Wait()
		r.settle(c, transport.Release, d)
		require.Equal(t, []string{"m0"}, ids(<-got))
	})
}

func TestRecordIsThereAfterACrash(t *testing.T) {
	t.Parallel()
	for keeping, want := range map[transport.Keeping]int{
		transport.KeepDurable: 3, transport.KeepAfterDelay: 0, transport.KeepProcess: 0,
	} {
		t.Run(string(keeping), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) { c.Attempts = keeping })})
				c := r.open()
				r.publish("m", "k", 1)
				d := r.receive(c, 1)[0]
				due := time.Now().Add(time.Minute)
				require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: d, Verdict: transport.Record, After: time.Minute, Attempts: 3, LastError: "x"}}))
				r.nothing(c)
				r.broker.Cut(errors.New("cut"), nil)

				again := r.receive(r.open(), 1)[0]
				require.True(t, again.Redelivered)
				require.Equal(t, want, again.Attempts)
				if want > 0 {
					require.Equal(t, due, again.NotBefore)
					require.Equal(t, "x", again.LastError)
				}
			})
		})
	}
}

func TestDelayForgetsAttemptsThatLiveInTheProcess(t *testing.T) {
	t.Parallel()
	for keeping, want := range map[transport.Keeping]int{
		transport.KeepDurable: 1, transport.KeepAfterDelay: 1, transport.KeepProcess: 0,
	} {
		r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) { c.Attempts = keeping })})
		c := r.open()
		r.publish("m", "k", 1)
		require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: r.receive(c, 1)[0], Verdict: transport.Delay, Attempts: 1}}))
		require.Equal(t, want, r.receive(c, 1)[0].Attempts, keeping)
	}
}

func TestSettleIsIdempotent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{})
		c := r.open()
		r.publish("m", "k", 2)
		ds := r.receiveAll(c, 2)
		batch := append(settlements(transport.Ack, ds[0]), settlements(transport.Release, ds[1])...)
		lost := errors.New("confirmation lost")
		r.broker.Inject(memory.Fault{Op: memory.OpSettle, Late: true, Times: 1, Err: lost})
		require.ErrorIs(t, c.Settle(t.Context(), batch), lost)

		again := r.receive(c, 2)
		require.Equal(t, []string{"m1"}, ids(again))
		require.NoError(t, c.Settle(t.Context(), batch))
		r.nothing(c) // the second Release is not one of the second hand-over
		r.settle(c, transport.Ack, again...)
		require.NoError(t, c.Settle(t.Context(), batch))
		require.Equal(t, transport.Depth{}, r.depth())
		r.nothing(c)
	})
}

func TestSettleAfterTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	c := r.open()
	r.publish("m", "k", 2)
	ds := r.receiveAll(c, 2)
	r.broker.Cut(errors.New("cut"), nil)
	require.True(t, ds[0].Assignment.Revoked())
	r.settle(c, transport.Ack, ds...)
	require.NoError(t, c.Close(t.Context()))
	require.Zero(t, r.broker.Acked(topicName, groupName))
	require.Equal(t, []string{"m0", "m1"}, ids(r.receiveAll(r.open(), 2)))
}

// From the moment a revocation is told, even before the broker has the
// messages back.
func TestSettleDuringTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	c := r.open()
	r.publish("m", "k", 1)
	d := r.receive(c, 1)[0]
	d.Assignment.OnLeave(func() { r.settle(c, transport.Ack, d) })
	r.broker.Revoke(groupName, topicName, d.Partition)
	require.Zero(t, r.broker.Acked(topicName, groupName))
	require.Equal(t, []string{"m0"}, ids(r.receive(c, 1)))
}

func TestSettleRefusesWhatIsNotIts(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Capabilities: caps(func(c *transport.Capabilities) { c.DurableDelay, c.Depth = false, false })})
	c := r.open()
	r.publish("m", "k", 1)
	d := r.receive(c, 1)[0]
	require.ErrorContains(t, c.Settle(t.Context(), settlements(transport.Ack, &transport.Delivery{Topic: "x"})), "not a delivery of this transport")
	require.ErrorContains(t, c.Settle(t.Context(), settlements(0, d)), "verdict")
	require.ErrorIs(t, c.Settle(t.Context(), settlements(transport.Delay, d)), transport.ErrUnsupported)
	_, err := r.tr.Depth(t.Context(), topicName, groupName)
	require.ErrorIs(t, err, transport.ErrUnsupported)
}
