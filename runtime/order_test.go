package runtime_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// publishKeys publishes n messages of each of so many keys, in turns; ids are "key/n".
func (w *world) publishKeys(keys, n int) {
	w.Helper()
	var batch []*message.Message
	for i := range n {
		for k := range keys {
			key := fmt.Sprintf("k%d", k)
			batch = append(batch, msg(fmt.Sprintf("%s/%03d", key, i), key, "x"))
		}
	}
	w.publish("in", batch...)
}

// requireKeyOrder checks that runs of each key began in the order of publishing.
func (w *world) requireKeyOrder() {
	w.Helper()
	last := make(map[string]string)
	for _, id := range w.order() {
		key, _, _ := strings.Cut(id, "/")
		require.LessOrEqual(w, last[key], id, "key %s", key)
		last[key] = id
	}
}

// TestKeyOrder: one delivery of a key at a time and in order, keys side by
// side, with handlers of random length (B1).
func TestKeyOrder(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		var at, most atomic.Int64
		busy := make(map[string]bool)
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			key := m.Metadata.Get(transport.KeyHeader)
			w.mu.Lock()
			require.False(w, busy[key], "two at once of key %s", key)
			busy[key] = true
			w.mu.Unlock()
			most.Store(max(most.Load(), at.Add(1)))
			time.Sleep(time.Duration(len(m.UUID)*7%5+1) * time.Millisecond)
			at.Add(-1)
			w.mu.Lock()
			busy[key] = false
			w.mu.Unlock()
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = 8 }))
		w.publishKeys(40, 25)
		s := w.settled()
		require.Equal(w, int64(1000), s.Count(transport.Handled))
		require.Equal(w, int64(8), most.Load(), "keys side by side, up to the concurrency")
		w.requireKeyOrder()
	})
}

// TestKeyOrderWithRetries: what is behind a failing message of its key waits
// for it, and other keys go on meanwhile (B2).
func TestKeyOrderWithRetries(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if strings.HasPrefix(m.UUID, "k1/") && transport.AttemptFrom(m.Context()).Number() < 3 {
				return nil, errBoom
			}
			return nil, nil
		}, w.policy())
		w.publishKeys(4, 5)
		began := time.Now()
		s := w.settled()
		require.Equal(w, int64(20), s.Count(transport.Handled))
		require.Equal(w, int64(10), s.Count(transport.Retried))
		w.requireKeyOrder()
		for _, id := range []string{"k0/004", "k2/004", "k3/004"} {
			require.Less(w, w.runsOf(id)[0].at.Sub(began), time.Second, "%s waits for another key", id)
		}
		runs := w.runsOf("k1/004")
		require.Equal(w, 15*time.Second, runs[len(runs)-1].at.Sub(w.runsOf("k1/000")[0].at), "five times 1s and 2s, one after another")
	})
}

// TestPartitionOrder: one delivery of a partition at a time.
func TestPartitionOrder(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		busy := make(map[int32]bool)
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			part := transport.AttemptFrom(m.Context()).Delivery().Partition
			w.mu.Lock()
			require.False(w, busy[part])
			busy[part] = true
			w.mu.Unlock()
			time.Sleep(time.Millisecond)
			w.mu.Lock()
			busy[part] = false
			w.mu.Unlock()
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Order = transport.OrderPartition }))
		w.publishKeys(10, 10)
		require.Equal(w, int64(100), w.settled().Count(transport.Handled))
		w.requireKeyOrder()
	})
}

// TestNoKeyIsALaneOfItsOwn: messages without a key do not wait for each other.
func TestNoKeyIsALaneOfItsOwn(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		gate := make(chan struct{})
		var at atomic.Int64
		w.consume(func(*message.Message) ([]*message.Message, error) {
			if at.Add(1) == 8 {
				close(gate)
			}
			<-gate
			return nil, nil
		}, w.policy())
		for i := range 8 {
			w.publish("in", msg(fmt.Sprint(i), "", "x"))
		}
		require.Equal(w, int64(8), w.settled().Count(transport.Handled))
	})
}

// TestParkedHoldsNoSlot: with one slot, a waiting message lets others run.
func TestParkedHoldsNoSlot(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "bad" {
				return nil, errBoom
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = 1 }))
		began := time.Now()
		w.publish("in", msg("bad", "a", "x"), msg("good", "b", "x"))
		w.settled()
		require.Less(w, w.runsOf("good")[0].at.Sub(began), time.Second)
		require.Len(w, w.runsOf("bad"), 5)
	})
}

// TestHeldByOrder: when half of the credit waits behind failing messages, only
// the partition they are in is paused, and the status says so.
func TestHeldByOrder(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		if !w.tr.Capabilities().ReleaseInOrder {
			return
		}
		healed := make(chan struct{})
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			select {
			case <-healed:
				return nil, nil
			default:
			}
			if strings.HasPrefix(m.UUID, "bad/") {
				return nil, later{errBoom, 30 * time.Second}
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency, p.Prefetch = 2, 8 }))
		bad, good := "a", "b" // keys of two partitions
		for w.partitionOf(good) == w.partitionOf(bad) {
			good += "b"
		}
		for i := range 20 {
			w.publish("in", msg(fmt.Sprintf("bad/%02d", i), bad, "x"))
		}
		time.Sleep(time.Second)
		s := w.router.Status()[0]
		require.Equal(w, runtime.StateHeld, s.State)
		require.Equal(w, 1, s.Parked)
		require.Equal(w, 4, s.Parked+s.HeldByOrder, "half of the credit")
		for i := range 20 {
			w.publish("in", msg(fmt.Sprintf("good/%02d", i), good, "x"))
		}
		time.Sleep(time.Second)
		require.Len(w, w.runsOf("good/19"), 1, "the other partition goes on")
		close(healed)
		require.Equal(w, int64(40), w.settled().Count(transport.Handled))
		require.Equal(w, runtime.StateRunning, w.router.Status()[0].State)
		w.requireKeyOrder()
	})
}

// partitionOf finds where a key goes.
func (w *world) partitionOf(key string) int32 {
	topic := "probe" + key
	w.publish(topic, msg("p", key, "x"))
	return w.read(topic)[0].Partition
}

// TestOvertake: beyond max_park, and beyond half of the credit, the wait is
// handed to the broker, and later messages of the key go on.
func TestOvertake(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{}, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "slow" && transport.AttemptFrom(m.Context()).Number() == 1 {
				return nil, later{errBoom, time.Minute}
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.RetryOrder = transport.RetryOvertake }))
		began := time.Now()
		w.publish("in", msg("slow", "k", "x"), msg("next", "k", "x"))
		time.Sleep(time.Second)
		require.Len(w, w.runsOf("next"), 1, "it overtakes")
		require.Zero(w, w.router.Status()[0].InFlight, "the broker has it")
		w.settled()
		require.GreaterOrEqual(w, w.runsOf("slow")[1].at.Sub(began), time.Minute)
		require.Equal(w, 2, w.runsOf("slow")[1].attempt)
	})
}

// TestCreditInBytes: no more bytes are held than asked for and one message,
// which may be larger than all of it.
func TestCreditInBytes(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		if !w.tr.Capabilities().ByteWindow {
			return
		}
		const limit = 4 << 10
		var most atomic.Int64
		w.consume(func(*message.Message) ([]*message.Message, error) {
			s := w.router.Status()[0]
			most.Store(max(most.Load(), s.InFlightBytes))
			time.Sleep(time.Millisecond)
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.PrefetchBytes, p.Concurrency, p.Prefetch = limit, 4, 64 }))
		for i := range 40 {
			size := 1000
			if i%10 == 5 {
				size = 3 * limit
			}
			w.publish("in", msg(fmt.Sprint(i), "", strings.Repeat("x", size)))
		}
		require.Equal(w, int64(40), w.settled().Count(transport.Handled))
		require.LessOrEqual(w, most.Load(), int64(limit+3*limit+100), "one beyond the credit at most")
	})
}

// TestPrefetch: with handlers that do not return, no more is taken than the
// prefetch (B5).
func TestPrefetch(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		gate := make(chan struct{})
		w.consume(func(*message.Message) ([]*message.Message, error) {
			<-gate
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency, p.Prefetch = 2, 10 }))
		w.publishKeys(100, 5)
		time.Sleep(time.Second)
		s := w.router.Status()[0]
		require.Equal(w, 10, s.InFlight)
		require.Equal(w, 2, s.Running)
		require.Equal(w, int64(10), s.Received)
		time.Sleep(time.Minute)
		require.GreaterOrEqual(w, w.router.Status()[0].Oldest, time.Minute)
		close(gate)
		require.Equal(w, int64(500), w.settled().Count(transport.Handled))
	})
}
