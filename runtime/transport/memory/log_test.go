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

func TestLogDeliversWhatWasAckedAheadAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Log: true})
		c := r.open()
		r.publish("m", "k", 6)
		ds := r.receiveAll(c, 5)
		r.settle(c, transport.Ack, ds[0], ds[1], ds[3])
		require.Equal(t, int64(3), r.broker.Acked(topicName, groupName))
		r.broker.Cut(errors.New("cut"), nil)
		require.Equal(t, int64(2), r.broker.Acked(topicName, groupName))
		require.Equal(t, int64(4), r.depth().Ready)

		c = r.open()
		again := r.receiveAll(c, 4)
		require.Equal(t, []string{"m2", "m3", "m4", "m5"}, ids(again))
		for i, d := range again {
			require.Equal(t, i < 3, d.Redelivered, d.ID)
		}
		r.settle(c, transport.Ack, again...)
		r.broker.Cut(errors.New("cut"), nil)
		r.nothing(r.open())
	})
}

// A queue knows of each ack by itself.
func TestQueueKeepsWhatWasAckedAfterACrash(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{})
	c := r.open()
	r.publish("m", "k", 4)
	ds := r.receiveAll(c, 4)
	r.settle(c, transport.Ack, ds[1], ds[2])
	r.broker.Cut(errors.New("cut"), nil)
	require.Equal(t, []string{"m0", "m3"}, ids(r.receiveAll(r.open(), 2)))
}

// What was acked ahead and kept by a clean close is not delivered again by a
// crash after the mark has passed it.
func TestLogCrashAfterACleanClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Log: true})
		c := r.open()
		r.publish("m", "k", 3)
		ds := r.receiveAll(c, 3)
		r.settle(c, transport.Ack, ds[1])
		require.NoError(t, c.Close(t.Context()))
		c = r.open()
		ds = r.receiveAll(c, 2)
		require.Equal(t, []string{"m0", "m2"}, ids(ds))
		r.settle(c, transport.Ack, ds[0])
		r.broker.Cut(errors.New("cut"), nil)
		c = r.open()
		require.Equal(t, []string{"m2"}, ids(r.receive(c, 9)))
	})
}

// Likewise where nothing is left open, so that the mark lags behind.
func TestLogCrashBehindAllThatIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Log: true, Retain: -1})
		c := r.open()
		r.publish("m", "k", 2)
		r.settle(c, transport.Ack, r.receiveAll(c, 2)[1])
		require.NoError(t, c.Close(t.Context()))
		c = r.open()
		r.settle(c, transport.Ack, r.receive(c, 9)...)
		require.Equal(t, transport.Depth{}, r.depth())
		r.broker.Cut(errors.New("cut"), nil)
		c = r.open()
		r.publish("n", "k", 1)
		ds := r.receive(c, 9)
		require.Equal(t, []string{"n0"}, ids(ds))
		r.settle(c, transport.Ack, ds...)
		require.Equal(t, transport.Depth{}, r.depth())
	})
}

// What was acked after a delay is settled by itself, wherever the mark is.
func TestLogKeepsTheAckOfADelayedMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Log: true})
		c := r.open()
		r.publish("m", "k", 2)
		ds := r.receiveAll(c, 2)
		r.settle(c, transport.Delay, ds[1])
		r.settle(c, transport.Ack, r.receive(c, 9)...)
		r.broker.Cut(errors.New("cut"), nil)
		c = r.open()
		require.Equal(t, []string{"m0"}, ids(r.receive(c, 9)))
	})
}

func TestLogHonoursSpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Log: true})
		c := r.open(func(c *transport.ConsumerConfig) { c.Span = 3 })
		r.publish("m", "k", 9)
		ds := r.receiveAll(c, 3)
		r.settle(c, transport.Ack, ds[1], ds[2])
		r.nothing(c)

		got := make(chan []*transport.Delivery)
		go func() {
			ds, _ := c.Receive(t.Context(), 9, unbounded)
			got <- ds
		}()
		synctest.Wait()
		r.settle(c, transport.Ack, ds[0])
		require.Equal(t, []string{"m3", "m4", "m5"}, ids(<-got))
		r.nothing(c)
	})
}

// A delayed message is no longer in the way of the mark, and a crash neither
// loses it nor brings it early.
func TestLogDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Options{Log: true})
		c := r.open(func(c *transport.ConsumerConfig) { c.Span = 2 })
		r.publish("m", "k", 3)
		ds := r.receiveAll(c, 2)
		require.NoError(t, c.Settle(t.Context(), []transport.Settlement{
			{Delivery: ds[0], Verdict: transport.Delay, After: time.Minute, Attempts: 1},
			{Delivery: ds[1], Verdict: transport.Ack},
		}))
		last := r.receive(c, 9)
		require.Equal(t, []string{"m2"}, ids(last))
		r.settle(c, transport.Ack, last...)
		r.broker.Cut(errors.New("cut"), nil)

		c = r.open()
		begin := time.Now()
		d := r.receive(c, 9)[0]
		require.Equal(t, "m0", d.ID)
		require.Equal(t, 1, d.Attempts)
		require.Equal(t, time.Minute, time.Since(begin))
		r.broker.Cut(errors.New("cut"), nil)

		c = r.open()
		d = r.receive(c, 9)[0]
		require.Equal(t, "m0", d.ID, "held, not settled")
		r.settle(c, transport.Ack, d)
		require.Equal(t, transport.Depth{}, r.depth())
		r.broker.Cut(errors.New("cut"), nil)
		r.nothing(r.open())
	})
}
