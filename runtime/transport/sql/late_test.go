package sql_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// taker receives and acks, and remembers the order by key.
type taker struct {
	mu    sync.Mutex
	order map[string][]string
	seen  map[string]int
	came  chan struct{}
}

func take(t *testing.T, c transport.Consumer) *taker {
	t.Helper()
	k := &taker{order: map[string][]string{}, seen: map[string]int{}, came: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			ds, err := c.Receive(ctx, 200, 1<<20)
			if err != nil {
				if !isDone(err) {
					t.Error(err)
				}
				return
			}
			k.note(ds)
			batch := make([]transport.Settlement, len(ds))
			for i, d := range ds {
				batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
			}
			if err := c.Settle(context.WithoutCancel(ctx), batch); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return k
}

func (k *taker) note(ds []*transport.Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range ds {
		k.order[d.Key] = append(k.order[d.Key], d.ID)
		k.seen[d.ID]++
	}
	select {
	case k.came <- struct{}{}:
	default:
	}
}

// await waits until all of ids have come.
func (k *taker) await(t *testing.T, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	for {
		k.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return k.seen[id] > 0 })
		k.mu.Unlock()
		if len(missing) == 0 {
			return
		}
		select {
		case <-k.came:
		case <-ctx.Done():
			require.Empty(t, missing)
		}
	}
}

// twice gives what came more than once.
func (k *taker) twice() (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, n := range k.seen {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// load publishes single messages of many keys from a process of its own until
// stop is called, which gives their ids.
func (w *world) load(t *testing.T) (stop func() []string) {
	t.Helper()
	p := produce(t, w.open(t, func(o *sql.ServerOptions) { o.PoolSize = 4 }))
	ending := make(chan struct{})
	done := make(chan []string)
	go func() {
		var ids []string
		for n := 0; ; n++ {
			select {
			case <-ending:
				done <- ids
				return
			default:
			}
			id := fmt.Sprint("load-", n)
			if err := p.Publish(t.Context(), topicName, msg(id, fmt.Sprint("load", n%40), "x")); err != nil {
				t.Error(err)
			}
			ids = append(ids, id)
		}
	}()
	return func() []string {
		close(ending)
		return <-done
	}
}

// G4, P8: what commits late comes when it has, before everything that is
// published after that, and holds up nothing until then.
func TestLateCommitKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			c := consume(t, w.open(t))
			k := take(t, c)
			p := produce(t, w.open(t, func(o *sql.ServerOptions) { o.PoolSize = 3 }))
			stop := w.load(t)
			holds := []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond, 150 * time.Millisecond, 700 * time.Millisecond}
			rounds := 8
			if testing.Short() {
				rounds = 2
			}
			var wg sync.WaitGroup
			for i, hold := range holds {
				wg.Go(func() {
					key := fmt.Sprint("key", i)
					for n := range rounds {
						tx, err := w.raw.BeginTx(t.Context(), nil)
						if err != nil {
							t.Error(err)
							return
						}
						late, after := fmt.Sprintf("late-%d-%d", i, n), fmt.Sprintf("after-%d-%d", i, n)
						if err := sql.Publish(t.Context(), tx, topicName, msg(late, key, "x")); err != nil {
							t.Error(err)
							return
						}
						<-time.After(hold)
						if err := tx.Commit(); err != nil {
							t.Error(err)
						}
						if err := p.Publish(t.Context(), topicName, msg(after, key, "x")); err != nil {
							t.Error(err)
						}
						k.await(t, late, after)
					}
				})
			}
			wg.Wait()
			k.await(t, stop()...)
			for i := range holds {
				var want []string
				for n := range rounds {
					want = append(want, fmt.Sprintf("late-%d-%d", i, n), fmt.Sprintf("after-%d-%d", i, n))
				}
				require.Equal(t, want, k.order[fmt.Sprint("key", i)], "held for %v", holds[i])
			}
			require.Empty(t, k.twice())
		})
	}
}

// Producers in different processes, one after the other for each key: their
// order is that of the commits, though ids are given out before.
func TestOrderOverProducers(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			k := take(t, consume(t, w.open(t)))
			var ps [3]transport.Producer
			for i := range ps {
				ps[i] = produce(t, w.open(t, func(o *sql.ServerOptions) { o.PoolSize = 3 + i }))
			}
			const keys = 24
			each := 60
			if testing.Short() {
				each = 15
			}
			want := map[string][]string{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for key := range keys {
				wg.Go(func() {
					for n := range each {
						id := fmt.Sprintf("%d-%d", key, n)
						if err := ps[n%len(ps)].Publish(t.Context(), topicName, msg(id, fmt.Sprint("k", key), "x")); err != nil {
							t.Error(err)
						}
						mu.Lock()
						want[fmt.Sprint("k", key)] = append(want[fmt.Sprint("k", key)], id)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for _, ids := range want {
				k.await(t, ids...)
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			require.Equal(t, want, k.order)
		})
	}
}
