package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

const mib = 1 << 20

// memories runs a scenario with queues and with logs in memory.
func memories(t *testing.T, scenario func(w *world)) {
	t.Helper()
	for name, asLog := range map[string]bool{"queues": false, "logs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memory.Options{Log: asLog}, scenario)
		})
	}
}

// TestUntoldKeepsItsBytes: payloads that only wait for the broker to be told
// are bounded too, by as much again.
func TestUntoldKeepsItsBytes(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		w.connections(func(int64) patchedConsumer {
			return patchedConsumer{settle: func(ctx context.Context, _ []transport.Settlement, _ settle) error {
				<-ctx.Done()
				return ctx.Err()
			}}
		})
		var done atomic.Int64
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			done.Add(int64(len(m.Payload)))
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.PrefetchBytes = mib }))
		body := strings.Repeat("x", 64<<10)
		batch := make([]*message.Message, 64)
		for i := range batch {
			batch[i] = msg(fmt.Sprint(i), "", body)
		}
		w.publish("in", batch...)
		time.Sleep(20 * time.Second)
		require.Greater(w, done.Load(), int64(mib)/2)
		require.LessOrEqual(w, done.Load(), int64(2*mib))
	})
}

// TestLargeFailures: two messages larger than the whole credit that wait for
// their next attempt leave room for others.
func TestLargeFailures(t *testing.T) {
	t.Parallel()
	memories(t, func(w *world) {
		large, good := w.apart()
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if len(m.Payload) > mib && len(w.runsOf(m.UUID)) == 1 {
				return nil, later{errBoom, time.Minute}
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.PrefetchBytes = mib }))
		keys := w.neighbours(large, 2)
		body := strings.Repeat("x", mib+1)
		w.publish("in", msg("large 1", keys[0], body), msg("large 2", keys[1], body))
		time.Sleep(time.Second)
		w.publish("in", msg("good", good, "x"))
		time.Sleep(20 * time.Second)
		require.Len(w, w.runsOf("good"), 1)
		require.Equal(w, int64(3), w.settled().Count(transport.Handled))
	})
}

// TestLargeBesideASlowOne: a message larger than the credit that is left waits
// for no slow one, nor does what comes after it; no more than it is beyond the credit.
func TestLargeBesideASlowOne(t *testing.T) {
	t.Parallel()
	memories(t, func(w *world) {
		release := make(chan struct{})
		var most atomic.Int64
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			most.Store(max(most.Load(), w.router.Status()[0].InFlightBytes))
			if m.UUID == "slow" {
				<-release
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.PrefetchBytes, p.Timeout = mib, 0 }))
		w.publish("in", msg("slow", "a", "x"))
		time.Sleep(time.Second)
		for i := range 3 {
			w.publish("in", msg(fmt.Sprint("large ", i), fmt.Sprint("l", i), strings.Repeat("x", 2*mib)))
		}
		for i := range 10 {
			w.publish("in", msg(fmt.Sprint("good ", i), fmt.Sprint("g", i), "x"))
		}
		time.Sleep(10 * time.Second)
		close(release)
		require.Len(w, w.order(), 14)
		require.LessOrEqual(w, most.Load(), int64(3*mib)+1<<10)
		w.settled()
	})
}

// TestLoadedBeforeTheyAreDue: messages that an earlier process left waiting
// hold no more than half of the credit of the next one.
func TestLoadedBeforeTheyAreDue(t *testing.T) {
	t.Parallel()
	memories(t, func(w *world) {
		var healed atomic.Bool
		h := func(m *message.Message) ([]*message.Message, error) {
			if m.Metadata["bad"] != "" && !healed.Load() {
				return nil, later{errBoom, time.Minute}
			}
			return nil, nil
		}
		sick, good := w.apart()
		var batch []*message.Message
		for i, key := range w.neighbours(sick, 100) {
			batch = append(batch, msg(fmt.Sprintf("bad%03d/", i), key, "x", "bad", "1"))
		}
		w.consume(h, w.policy(func(p *transport.Policy) { p.Prefetch = 256 }))
		w.publish("in", batch...)
		time.Sleep(time.Second)
		require.Len(w, w.order(), 100)
		require.NoError(w, w.drain())

		w.consume(h, w.policy())
		time.Sleep(time.Second)
		w.publish("in", msg("good", good, "x"))
		time.Sleep(20 * time.Second)
		require.Len(w, w.runsOf("good"), 1)
		require.LessOrEqual(w, w.router.Status()[0].Parked, 64/2)
		require.Len(w, w.order(), 101, "none before its time")
		healed.Store(true)
		require.Equal(w, int64(101), w.settled().Count(transport.Handled))
		for id, runs := range w.runs {
			if id != "good" {
				require.Len(w, runs, 2, id)
				require.Equal(w, 2, runs[1].attempt, id)
				require.GreaterOrEqual(w, runs[1].at.Sub(runs[0].at), time.Minute-time.Millisecond, id)
			}
		}
	})
}

// TestIdleMeansTold: nothing is idle while the broker has not been told, not
// even on a transport that cannot count.
func TestIdleMeansTold(t *testing.T) {
	t.Parallel()
	caps := memory.Capabilities()
	caps.Depth = false
	inMemory(t, memory.Options{Capabilities: &caps}, func(w *world) {
		remove := w.broker.Inject(faultOf(memory.OpSettle, errAway))
		w.consume(ok, w.policy())
		w.publishKeys(4, 4)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.ErrorIs(w, w.router.WaitIdle(ctx, 3*time.Second), context.DeadlineExceeded)
		require.Equal(w, 16, w.router.Status()[0].Unsettled)
		remove()
		require.Zero(w, w.settled().Unsettled)
		require.Equal(w, int64(16), w.broker.Acked("in", "g"))
	})
}

// TestIdleWorkersKeepNothing: what an attempt was given is garbage once it is
// settled, also while nothing else comes.
func TestIdleWorkersKeepNothing(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Retain: -1}, func(w *world) {
		const n = 8
		var kept [n]weak.Pointer[byte]
		w.router = runtime.NewRouter(w.opts)
		require.NoError(w, w.router.Consume("c", w.tr, "in", func(m *message.Message) ([]*message.Message, error) {
			kept[m.UUID[0]-'0'] = weak.Make(&m.Payload[0])
			time.Sleep(time.Second)
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = n })))
		w.start()
		for i := range n {
			w.publish("in", msg(fmt.Sprint(i), "", strings.Repeat("x", 64<<10)))
		}
		require.Equal(w, int64(n), w.settled().Count(transport.Handled))
		synctest.Wait()
		goruntime.GC()
		for i := range kept {
			require.Nil(w, kept[i].Value(), "payload %d", i)
		}
	})
}
