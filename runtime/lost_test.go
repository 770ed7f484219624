package runtime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// TestAckedFailsWhileItsPartitionLeaves: what was acked on receipt has all its
// attempts, and its dead letter: it is nowhere else.
func TestAckedFailsWhileItsPartitionLeaves(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			transport.AttemptFrom(m.Context()).Delivery().Assignment.Leave()
			return nil, errBoom
		}, w.policy(onReceipt(1, 8)))
		w.publish("in", msg("m", "k", "x"))
		s := w.settled()
		require.Len(w, w.runsOf("m"), 5)
		require.Equal(w, int64(1), s.Count(transport.Dead))
		require.Len(w, w.read("in--g--dead"), 1)
	})
}

// TestAckedAndCutShort: an attempt that is cancelled, or that failed and can
// have no other, is one more message lost.
func TestAckedAndCutShort(t *testing.T) {
	t.Parallel()
	t.Run("the drain runs out of time", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memoryDefaults, func(w *world) {
			w.consume(func(m *message.Message) ([]*message.Message, error) {
				<-m.Context().Done()
				return nil, m.Context().Err()
			}, w.policy(onReceipt(1, 8)))
			w.publish("in", msg("m", "k", "x"))
			time.Sleep(time.Second)
			r := w.router
			require.ErrorIs(w, w.drain(), runtime.ErrDrainTimeout)
			require.Equal(w, int64(1), r.Status()[0].Lost)
		})
	})
	t.Run("its partition is revoked", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
			w.consume(func(*message.Message) ([]*message.Message, error) {
				time.Sleep(10 * time.Second)
				return nil, errBoom
			}, w.policy(onReceipt(1, 8)))
			w.publish("in", msg("m", "k", "x"))
			time.Sleep(time.Second)
			w.broker.Revoke("g", "in", 0)
			s := w.settled()
			require.Len(w, w.runsOf("m"), 1)
			require.Equal(w, int64(1), s.Lost)
		})
	})
}

// TestNoSpinOnWhatIsGivenBack: what is put back is not asked for again before
// its partition is paused.
func TestNoSpinOnWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		var received atomic.Int64
		w.connections(func(int64) patchedConsumer {
			return patchedConsumer{receive: func(ctx context.Context, limit int, maxBytes int64, next receive) ([]*transport.Delivery, error) {
				ds, err := next(ctx, limit, maxBytes)
				received.Add(1)
				return ds, err
			}}
		})
		w.moreThanTheCredit(true, func() {
			time.Sleep(5 * time.Second)
			require.LessOrEqual(w, received.Load(), int64(12))
		})
	})
}
