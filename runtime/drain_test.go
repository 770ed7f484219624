package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// TestDrainFinishesWhatRuns: attempts finish with live contexts and are
// acked; what has not started stays with the broker, untouched (H1).
func TestDrainFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		var alive atomic.Int64
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			time.Sleep(10 * time.Second)
			if m.Context().Err() == nil {
				alive.Add(1)
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = 4 }))
		w.publishKeys(20, 2)
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(w, w.drain())
		require.Equal(w, 9*time.Second, time.Since(began).Truncate(time.Second))
		require.Equal(w, int64(4), alive.Load())
		depth, err := w.tr.Depth(context.Background(), "in", "g")
		require.NoError(w, err)
		require.Equal(w, int64(36), depth.Ready+depth.Delayed+depth.Held, "the rest is where it was")

		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
		require.Equal(w, int64(36), w.settled().Count(transport.Handled))
		w.requireKeyOrder()
		for id, runs := range w.runs {
			require.Len(w, runs, 1, id)
			require.Equal(w, 1, runs[0].attempt, "no attempt spent")
		}
	})
}

// TestDrainTimeout: a handler that ignores its context does not hold up the
// stop for longer than the drain timeout and a moment; its message comes
// again, no attempt is spent, nothing is dead-lettered (H3, D5).
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		release := make(chan struct{})
		var cause atomic.Value
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "obeys" {
				<-m.Context().Done()
				cause.Store(context.Cause(m.Context()))
				return nil, m.Context().Err()
			}
			<-release
			return nil, errBoom
		}, w.policy(func(p *transport.Policy) { p.Retry, p.Timeout = backoff(w, 1), 0 }))
		w.publish("in", msg("obeys", "a", "x"), msg("ignores", "b", "x"))
		time.Sleep(time.Second)
		began := time.Now()
		err := w.drain()
		require.ErrorIs(w, err, runtime.ErrDrainTimeout)
		require.Less(w, time.Since(began), 27*time.Second)
		require.Equal(w, transport.ErrShutdown, cause.Load(), "the cause tells a shutdown from a timeout")
		close(release)

		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
		require.Equal(w, int64(2), w.settled().Count(transport.Handled))
		for _, id := range []string{"obeys", "ignores"} {
			runs := w.runsOf(id)
			require.Equal(w, 1, runs[len(runs)-1].attempt, "no attempt spent on a shutdown")
		}
		require.Empty(w, w.read("in--g--dead"))
	})
}

// TestDrainInBackoff: a message that waits for its next attempt does not hold
// up the stop, keeps its attempts and its order, and is not dead-lettered (D4).
func TestDrainInBackoff(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		fail := true
		h := func(m *message.Message) ([]*message.Message, error) {
			if fail && m.UUID == "k/0" {
				return nil, later{errBoom, 10 * time.Minute}
			}
			return nil, nil
		}
		w.consume(h, w.policy())
		w.publish("in", msg("k/0", "k", "x"), msg("k/1", "k", "x"))
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(w, w.drain())
		require.Less(w, time.Since(began), time.Second)

		fail = false
		w.consume(h, w.policy())
		require.Equal(w, int64(2), w.settled().Count(transport.Handled))
		require.Empty(w, w.read("in--g--dead"))
		w.requireKeyOrder()
		runs := w.runsOf("k/0")
		require.Len(w, runs, 2)
		want := 1
		if w.tr.Capabilities().Attempts == transport.KeepDurable {
			want = 2
		}
		require.Equal(w, want, runs[1].attempt)
	})
}

// TestDrainWhileFailing: an error of an attempt's own during a drain is a
// failure like any other: it is spent, and the message stays with the broker.
func TestDrainWhileFailing(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		fail := true
		h := func(*message.Message) ([]*message.Message, error) {
			if fail {
				time.Sleep(2 * time.Second)
				return nil, errBoom
			}
			return nil, nil
		}
		w.consume(h, w.policy())
		w.publish("in", msg("m", "k", "x"))
		time.Sleep(time.Second)
		require.NoError(w, w.drain())
		fail = false
		w.consume(h, w.policy())
		require.Equal(w, int64(1), w.settled().Count(transport.Handled))
		if w.tr.Capabilities().Attempts == transport.KeepDurable {
			require.Equal(w, 2, w.runsOf("m")[1].attempt)
		}
	})
}

// TestStopsWhileTheBrokerIsAway: there is nothing to wait for (H4).
func TestStopsWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.broker.Inject(faultOf(opOpenConsumer, errors.New("connection refused")))
		w.router = runtime.NewRouter(runtime.Options{})
		require.NoError(w, w.router.Consume("c", w.tr, "in", func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy()))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.router.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Equal(w, runtime.StateReconnecting, w.router.Status()[0].State)
		stop()
		require.NoError(w, <-ended)
	})
}

// TestStartAndStopManyTimes leaves nothing behind: the bubble, and goleak, see
// every goroutine (H5).
func TestStartAndStopManyTimes(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		for i := range 20 {
			w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
			w.publish("in", msg(fmt.Sprint(i), "k", "x"))
			w.settled()
			require.NoError(w, w.drain())
		}
		require.Len(w, w.order(), 20)
	})
}
