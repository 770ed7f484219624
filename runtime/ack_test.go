package runtime_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

func onReceipt(concurrency, prefetch int) func(*transport.Policy) {
	return func(p *transport.Policy) {
		p.AckOnReceive, p.Timeout, p.Concurrency, p.Prefetch = true, 0, concurrency, prefetch
	}
}

// TestAckedBeforeItRuns: no handler starts on what the broker has not been told of.
func TestAckedBeforeItRuns(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			t.Parallel()
			inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
				w.broker.Inject(memory.Fault{Op: memory.OpSettle, Err: errAway, Times: 3, Late: late})
				var ahead atomic.Int64
				w.consume(func(*message.Message) ([]*message.Message, error) {
					ahead.Store(max(ahead.Load(), int64(len(w.order()))-w.broker.Acked("in", "g")))
					return nil, nil
				}, w.policy(onReceipt(4, 16)))
				w.publishKeys(1, 60)
				w.settled()
				require.LessOrEqual(w, ahead.Load(), int64(0))
				for id, runs := range w.runs {
					require.Len(w, runs, 1, id)
				}
				if !late {
					require.Len(w, w.order(), 60, "what was not told comes again")
					w.requireKeyOrder()
				}
				require.Equal(w, int64(60), w.broker.Acked("in", "g"))
			})
		})
	}
}

// TestLostBeforeTheAck: what a lost connection did not take comes again and
// runs; none is acked unrun.
func TestLostBeforeTheAck(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		remove := w.broker.Inject(faultOf(memory.OpSettle, errAway))
		w.consume(ok, w.policy(onReceipt(1, 64)))
		w.publishKeys(1, 20)
		time.Sleep(time.Second)
		w.broker.Cut(errAway, nil)
		time.Sleep(time.Millisecond)
		require.Empty(w, w.order())
		remove()
		s := w.settled()
		require.Len(w, w.order(), 20)
		require.Equal(w, int64(20), s.Count(transport.Handled))
		require.Zero(w, s.Lost)
	})
}

// TestAckedRunsInTheDrain: what was acked on receipt is nowhere else, so a
// drain runs all of it, waits for its retries, and takes nothing more.
func TestAckedRunsInTheDrain(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 4} {
		inMemory(t, memory.Options{Partitions: 1}, func(w *world) { w.drainAcked(concurrency) })
	}
}

func (w *world) drainAcked(concurrency int) {
	w.Helper()
	w.consume(func(m *message.Message) ([]*message.Message, error) {
		time.Sleep(time.Second)
		if m.UUID == "k0/002" && len(w.runsOf(m.UUID)) < 3 {
			return nil, errBoom
		}
		return nil, nil
	}, w.policy(onReceipt(concurrency, 8)))
	w.publishKeys(2, 6)
	time.Sleep(500 * time.Millisecond)
	r := w.router
	require.NoError(w, w.drain())
	s := r.Status()[0]
	require.Equal(w, s.Received, w.broker.Acked("in", "g"))
	require.Equal(w, s.Received, s.Count(transport.Handled))
	require.Equal(w, int64(2), s.Count(transport.Retried))
	require.Zero(w, s.Lost)
	w.requireKeyOrder()
}

// TestLostIsCounted: what was acked and cannot run any more is in the status.
func TestLostIsCounted(t *testing.T) {
	t.Parallel()
	t.Run("the drain runs out of time", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
			w.consume(tenSeconds, w.policy(onReceipt(1, 8)))
			w.publishKeys(1, 8)
			time.Sleep(500 * time.Millisecond)
			r := w.router
			require.ErrorIs(w, w.drain(), runtime.ErrDrainTimeout)
			time.Sleep(20 * time.Second) // for the one that runs
			s := r.Status()[0]
			require.Equal(w, int64(3), s.Count(transport.Handled))
			require.Equal(w, int64(5), s.Lost)
			require.Len(w, w.order(), 3)
		})
	})
	t.Run("the partition is revoked", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
			w.consume(tenSeconds, w.policy(onReceipt(1, 8)))
			w.publishKeys(1, 8)
			time.Sleep(500 * time.Millisecond)
			w.broker.Revoke("g", "in", 0)
			s := w.settled()
			require.Len(w, w.order(), 1)
			require.Equal(w, int64(7), s.Lost)
		})
	})
	t.Run("the partition leaves", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
			w.consume(func(m *message.Message) ([]*message.Message, error) {
				time.Sleep(time.Second)
				transport.AttemptFrom(m.Context()).Delivery().Assignment.Leave()
				return nil, nil
			}, w.policy(onReceipt(1, 8)))
			w.publishKeys(1, 8)
			s := w.settled()
			require.Equal(w, int64(8), s.Count(transport.Handled), "what is here is ours alone")
			require.Zero(w, s.Lost)
		})
	})
}

func tenSeconds(*message.Message) ([]*message.Message, error) {
	time.Sleep(10 * time.Second)
	return nil, nil
}
