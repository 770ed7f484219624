package runtime_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// TestDeadConnectionBehindATell: a connection that takes no settlement is
// given up, though the receiver waits for just that and finds nothing out.
func TestDeadConnectionBehindATell(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		var dead atomic.Bool
		opened := w.connections(func(n int64) patchedConsumer {
			if n > 1 {
				return patchedConsumer{}
			}
			return patchedConsumer{
				receive: func(ctx context.Context, limit int, maxBytes int64, next receive) ([]*transport.Delivery, error) {
					if dead.Load() {
						return nil, errAway
					}
					ds, err := next(ctx, limit, maxBytes)
					if len(ds) > 0 {
						w.broker.Rebalance("g", "in", 0) // so that it is given back at once
						dead.Store(true)
					}
					return ds, err
				},
				settle: func(ctx context.Context, batch []transport.Settlement, next settle) error {
					if dead.Load() {
						return errAway
					}
					return next(ctx, batch)
				},
			}
		})
		w.consume(ok, w.policy())
		w.publish("in", msg("m", "k", "x"))
		time.Sleep(2 * time.Minute)
		require.Equal(w, int64(2), opened.Load())
		require.Equal(w, runtime.StateRunning, w.router.Status()[0].State)
		require.Len(w, w.order(), 1)
		require.NoError(w, w.drain())
	})
}

// TestSettleThatNeverSucceeds: what is done with and not told is bounded, and
// a connection on which nothing can be told is given up. What was done is
// acked unrun on the next one.
func TestSettleThatNeverSucceeds(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		const n = 5000
		opened := w.connections(func(c int64) patchedConsumer {
			return patchedConsumer{settle: func(ctx context.Context, batch []transport.Settlement, next settle) error {
				if c == 1 {
					return errAway
				}
				return next(ctx, batch)
			}}
		})
		w.consume(ok, w.policy())
		batch := make([]*message.Message, n)
		for i := range batch {
			batch[i] = msg(fmt.Sprint(i), "", "x")
		}
		w.publish("in", batch...)
		time.Sleep(20 * time.Second)
		require.Less(w, len(w.order()), n)
		require.Equal(w, runtime.StateBlocked, w.router.Status()[0].State)
		w.settled()
		require.Equal(w, int64(2), opened.Load())
		require.Len(w, w.order(), n)
		require.Equal(w, int64(n), w.broker.Acked("in", "g"))
	})
}

// TestSettleThatHangs: neither a drain nor the next connection waits for it for long.
func TestSettleThatHangs(t *testing.T) {
	t.Parallel()
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memoryDefaults, func(w *world) {
			w.consume(ok, w.policy())
			w.broker.Inject(memory.Fault{Op: memory.OpSettle, Hang: true, Err: errAway})
			w.publish("in", msg("m", "k", "x"))
			time.Sleep(time.Second)
			began := time.Now()
			require.NoError(w, w.drain(), "nothing runs")
			require.Less(w, time.Since(began), 10*time.Second)
		})
	})
	t.Run("reconnect", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memoryDefaults, func(w *world) {
			w.consume(ok, w.policy())
			w.broker.Inject(memory.Fault{Op: memory.OpSettle, Hang: true, Err: errAway, Times: 1})
			w.publish("in", msg("m", "k", "x"))
			time.Sleep(10 * time.Millisecond)
			w.broker.Cut(errAway, nil)
			w.publish("in", msg("n", "k", "x"))
			time.Sleep(5 * time.Second)
			require.Equal(w, []string{"m", "n"}, w.order())
			require.Equal(w, int64(1), w.settled().Count(transport.Duplicate))
		})
	})
}

// TestHandlerThatDoesNotReturn keeps its slot, its lane and half of the
// credit, and no more: other partitions go on. What waited runs after it, in
// order and once, whatever it comes to in the end.
func TestHandlerThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	t.Run("and then succeeds", func(t *testing.T) {
		t.Parallel()
		worlds(t, func(w *world) { w.hangFirst(nil) })
	})
	t.Run("and then fails", func(t *testing.T) {
		t.Parallel()
		inMemory(t, memoryDefaults, func(w *world) { w.hangFirst(errBoom) })
	})
}

// hangFirst has the first of 100 messages of a key not return for 15 seconds, and then with err.
func (w *world) hangFirst(err error) {
	if !w.tr.Capabilities().ReleaseInOrder {
		return
	}
	release := make(chan struct{})
	w.consume(func(m *message.Message) ([]*message.Message, error) {
		if m.UUID == "a/000" && len(w.runsOf("a/000")) == 1 {
			<-release
			return nil, err
		}
		return nil, nil
	}, w.policy(func(p *transport.Policy) { p.Timeout = 0 }))
	hangs, good := w.apart()
	for i := range 100 {
		w.publish("in", msg(fmt.Sprintf("a/%03d", i), hangs, "x"))
	}
	time.Sleep(time.Second)
	for i := range 100 {
		w.publish("in", msg(fmt.Sprintf("b/%03d", i), good, "x"))
	}
	time.Sleep(15 * time.Second)
	goesOn, s := len(w.runsOf("b/099")), w.router.Status()[0]
	close(release)
	require.Equal(w, 1, goesOn)
	require.Equal(w, runtime.StateHeld, s.State)
	require.Equal(w, 1, s.Running)
	require.LessOrEqual(w, s.InFlight, 1+64/2)
	s = w.settled()
	require.Equal(w, int64(200), s.Count(transport.Handled))
	require.Equal(w, runtime.StateRunning, s.State)
	require.Zero(w, s.Parked+s.HeldByOrder+s.InFlight)
	require.Zero(w, s.InFlightBytes)
	w.requireKeyOrder()
	require.Len(w, w.runsOf("a/099"), 1)
}

// moreThanTheCredit has a consumer with a prefetch of 64 read two messages of
// each of 100 failing keys of one partition, then ten good ones of another, and
// heals it after run. The two come one after the other, or, spread, with those
// of all other keys between them.
func (w *world) moreThanTheCredit(spread bool, run func()) {
	w.Helper()
	sick, good := w.apart()
	keys := w.neighbours(sick, 100)
	var healed atomic.Bool
	w.consume(func(m *message.Message) ([]*message.Message, error) {
		if m.Metadata["bad"] != "" && !healed.Load() {
			return nil, later{errBoom, 30 * time.Second}
		}
		return nil, nil
	}, w.policy())
	var batch []*message.Message
	for k, key := range keys {
		for i := range 2 {
			batch = append(batch, msg(fmt.Sprintf("bad%03d/%d", k, i), key, "x", "bad", "1"))
		}
	}
	if spread {
		slices.SortStableFunc(batch, func(a, b *message.Message) int {
			return cmp.Compare(a.UUID[len(a.UUID)-1], b.UUID[len(b.UUID)-1])
		})
	}
	w.publish("in", batch...)
	time.Sleep(time.Second)
	for i := range 10 {
		w.publish("in", msg(fmt.Sprintf("good/%d", i), good, "x"))
	}
	run()
	healed.Store(true)
	s := w.settled()
	require.Equal(w, int64(210), s.Count(transport.Handled))
	require.Equal(w, runtime.StateRunning, s.State)
	require.Zero(w, s.Parked+s.HeldByOrder+s.InFlight)
	require.Zero(w, s.InFlightBytes)
	w.requireKeyOrder()
}

// neighbours gives n keys of the partition of one.
func (w *world) neighbours(one string, n int) (keys []string) {
	w.Helper()
	var probes []*message.Message
	for i := range 20 * n {
		key := fmt.Sprint("k", i)
		probes = append(probes, msg(key, key, "x"))
	}
	want := w.partitionOf(one)
	w.publish("neighbours", probes...)
	for _, d := range w.read("neighbours") {
		if d.Partition == want && len(keys) < n {
			keys = append(keys, d.Key)
		}
	}
	require.Len(w, keys, n)
	return keys
}

// TestMoreFailuresThanTheCredit: what may not wait here is given back to a
// broker that keeps its order and its attempts; other partitions go on, and
// the broker is not asked for it again and again.
func TestMoreFailuresThanTheCredit(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		if c := w.tr.Capabilities(); !c.ReleaseInOrder || c.Attempts != transport.KeepDurable {
			return
		}
		var received, released atomic.Int64
		w.connections(func(int64) patchedConsumer {
			return patchedConsumer{
				receive: func(ctx context.Context, limit int, maxBytes int64, next receive) ([]*transport.Delivery, error) {
					ds, err := next(ctx, limit, maxBytes)
					received.Add(int64(len(ds)))
					return ds, err
				},
				settle: func(ctx context.Context, batch []transport.Settlement, next settle) error {
					for _, st := range batch {
						if st.Verdict == transport.Release {
							released.Add(1)
						}
					}
					return next(ctx, batch)
				},
			}
		})
		w.moreThanTheCredit(true, func() {
			time.Sleep(5 * time.Second)
			for i := range 10 {
				require.Len(w, w.runsOf(fmt.Sprintf("good/%d", i)), 1)
			}
			s := w.router.Status()[0]
			require.Equal(w, runtime.StateHeld, s.State)
			require.LessOrEqual(w, s.Parked+s.HeldByOrder, 64/2)
			require.Positive(w, released.Load())
			was, back := received.Load(), released.Load()
			time.Sleep(20 * time.Second)
			require.Equal(w, was, received.Load())
			require.Equal(w, back, released.Load())
		})
		for id, runs := range w.runs {
			require.LessOrEqual(w, len(runs), 3, id)
			require.LessOrEqual(w, runs[len(runs)-1].attempt, len(runs), id)
		}
	})
}

// TestPausesWhatItCannotGiveBack: a broker that takes back no single delivery
// has the consumer wait with what it holds; nothing is lost or overtaken.
func TestPausesWhatItCannotGiveBack(t *testing.T) {
	t.Parallel()
	caps := memory.Capabilities()
	caps.ReleaseInOrder = false
	for _, spread := range []bool{true, false} {
		inMemory(t, memory.Options{Partitions: 2, Capabilities: &caps}, func(w *world) {
			w.broker.Observe(func(e memory.Event) {
				if e.Kind == memory.Settled && e.Verdict == transport.Release {
					w.Error("released: ", e.ID)
				}
			})
			w.moreThanTheCredit(spread, func() {
				time.Sleep(20 * time.Second)
				s := w.router.Status()[0]
				require.Equal(w, runtime.StateHeld, s.State)
				require.LessOrEqual(w, s.InFlight, 64)
			})
		})
	}
}

// TestHookThatHangs is bounded, shown and called again; it holds no slot meanwhile.
func TestHookThatHangs(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		calls := 0
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "bad" {
				transport.OnSettle(m.Context(), func(ctx context.Context, _ transport.Outcome) error {
					if calls++; calls > 2 {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				})
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = 1 }))
		w.publish("in", msg("bad", "k", "x"), msg("next", "k", "x"))
		time.Sleep(time.Second)
		w.publish("in", msg("other", "o", "x"))
		time.Sleep(45 * time.Second)
		s := w.router.Status()[0]
		require.Equal(w, runtime.StateBlocked, s.State)
		require.Contains(w, s.Why, "settlement hook")
		require.Equal(w, []string{"bad", "other"}, w.order())
		require.Equal(w, int64(3), w.settled().Count(transport.Handled))
		require.Equal(w, 3, calls)
	})
}

// TestHooksAtTheEndOfADrain get a context that lives, to let go of what they hold.
func TestHooksAtTheEndOfADrain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		obeys bool // the handler, when its context ends; else it has returned
		want  []transport.Outcome
	}{
		"of an attempt that is cancelled": {obeys: true, want: []transport.Outcome{transport.Interrupted}},
		"after a store that was down":     {want: []transport.Outcome{transport.Handled, transport.Interrupted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				var told []transport.Outcome
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					transport.OnSettle(m.Context(), func(ctx context.Context, o transport.Outcome) error {
						if len(told) == 0 || told[len(told)-1] != o {
							told = append(told, o)
						}
						if o == transport.Handled {
							return errors.New("store is down")
						}
						return ctx.Err()
					})
					if tc.obeys {
						<-m.Context().Done()
					}
					return nil, m.Context().Err()
				}, w.policy(func(p *transport.Policy) { p.Timeout = 0 }))
				w.publish("in", msg("m", "k", "x"))
				time.Sleep(time.Second)
				r := w.router
				require.ErrorIs(w, w.drain(), runtime.ErrDrainTimeout)
				require.Equal(w, tc.want, told)
				require.Equal(w, int64(1), r.Status()[0].Count(transport.Interrupted))
				require.Zero(w, w.broker.Acked("in", "g"))
			})
		})
	}
}
