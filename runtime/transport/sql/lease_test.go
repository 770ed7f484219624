package sql_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// kill leaves a consumer as a killed process would, and returns it.
func kill(t *testing.T, tr *sql.Transport, n int, change ...func(*transport.ConsumerConfig)) (transport.Consumer, []*transport.Delivery) {
	t.Helper()
	c, err := tr.OpenConsumer(t.Context(), config(change...))
	require.NoError(t, err)
	ds := receive(t, c, n)
	sql.Kill(c)
	return c, ds
}

func TestTakeoverAfterKill(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	publish(t, produce(t, tr), "m", 50)
	zombie, held := kill(t, tr, 50)
	began := time.Now()
	next := consume(t, b.elsewhere(briefly))
	again := receive(t, next, 50)
	require.GreaterOrEqual(t, time.Since(began), lease/4, "not before the lease has run out")
	require.Equal(t, ids(held), ids(again))

	// The zombie's word counts for nothing, and it learns that.
	settle(t, zombie, transport.Ack, held...)
	require.Equal(t, 50, b.count("leat_deliveries"))
	require.Equal(t, 50, b.count("leat_messages"))
	for _, d := range held {
		require.ErrorIs(t, context.Cause(d.Assignment.Context()), transport.ErrRevoked)
		require.NotSame(t, d.Assignment, again[0].Assignment)
	}
	settle(t, next, transport.Ack, again...)
	require.Zero(t, b.count("leat_messages"))
}

func TestZombieStateChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	publish(t, produce(t, tr), "m", 3)
	zombie, held := kill(t, tr, 3)
	next := consume(t, b.open(briefly))
	receive(t, next, 3)
	require.NoError(t, zombie.Settle(t.Context(), []transport.Settlement{
		{Delivery: held[0], Verdict: transport.Delay, After: time.Hour, Attempts: 1},
		{Delivery: held[1], Verdict: transport.Record, After: time.Hour, Attempts: 1},
		{Delivery: held[2], Verdict: transport.Release},
	}))
	require.Equal(t, 3, b.count("leat_deliveries"))
	require.Zero(t, b.count("leat_delayed"))
	require.Zero(t, b.count("leat_attempts"))
}

// An instance that was set takes its own leases back at once.
func TestSetInstanceTakesBackAtOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(func(o *sql.Options) { o.Lease = time.Hour })
	publish(t, produce(t, tr), "m", 10)
	set := func(c *transport.ConsumerConfig) { c.Instance = transport.Instance{ID: "pod-1", Set: true} }
	_, held := kill(t, tr, 10, set)
	again := receive(t, consume(t, b.open(func(o *sql.Options) { o.Lease = time.Hour }), set), 10)
	require.Equal(t, ids(held), ids(again))
}

func TestFencedBySameInstance(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	set := func(c *transport.ConsumerConfig) { c.Instance = transport.Instance{ID: "pod-1", Set: true} }
	tr := b.open(briefly)
	publish(t, produce(t, tr), "m", 10)
	old := consume(t, tr, set)
	held := receive(t, old, 10)
	next := consume(t, b.open(briefly), set)
	require.Len(t, receive(t, next, 10), 10)
	_, err := old.Receive(t.Context(), 10, 1000)
	require.ErrorContains(t, err, `instance "pod-1": another process runs under the same instance name`)
	require.True(t, transport.Refused(err))
	settle(t, old, transport.Ack, held...)
	require.Equal(t, 10, b.count("leat_deliveries"))
}

// A lease that could not be renewed ends by our own clock.
func TestUnrenewedLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	publish(t, produce(t, tr), "m", 5)
	c := consume(t, tr)
	ds := receive(t, c, 5)
	quiet(t, c, 2*lease)
	require.False(t, ds[0].Assignment.Revoked(), "renewed meanwhile")
	other := b.raw()
	_, err := other.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	require.NoError(t, err)
	select {
	case <-ds[0].Assignment.Context().Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "not revoked")
	}
	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}}))
	again := receive(t, c, 5)
	require.Equal(t, ids(ds), ids(again), "nothing is lost, and it goes on")
	settle(t, c, transport.Ack, again...)
	require.Zero(t, b.count("leat_messages"))
}

// member works like the engine: it settles what it gets, and releases what
// has not started when an assignment leaves.
type member struct {
	c       transport.Consumer
	mu      sync.Mutex
	parts   map[int32]bool
	handled map[string]int
}

func work(ctx context.Context, t *testing.T, wg *sync.WaitGroup, c transport.Consumer) *member {
	t.Helper()
	m := &member{c: c, parts: map[int32]bool{}, handled: map[string]int{}}
	wg.Go(func() {
		for {
			ds, err := c.Receive(ctx, 20, 1<<20)
			if err != nil {
				if !isDone(err) {
					t.Error(err)
				}
				return
			}
			var batch []transport.Settlement
			m.mu.Lock()
			for _, d := range ds {
				m.parts[d.Partition] = true
				m.handled[d.ID]++
				batch = append(batch, transport.Settlement{Delivery: d, Verdict: transport.Ack})
			}
			m.mu.Unlock()
			if err := c.Settle(ctx, batch); err != nil && !isDone(err) {
				t.Error(err)
			}
		}
	})
	return m
}

func (m *member) seen() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handled)
}

func (m *member) partitions() map[int32]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	parts := m.parts
	m.parts = map[int32]bool{}
	return parts
}

// A6 and hand-over: whoever joins or leaves, each message is handled once, and
// everybody gets a fair share.
func TestMembersShare(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	p := produce(t, tr)
	workers := []*sql.Transport{tr, b.elsewhere()}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	total := map[string]bool{}
	next := 0
	more := func() {
		for range 40 {
			id := fmt.Sprint("m", next)
			next++
			total[id] = true
			require.NoError(t, p.Publish(t.Context(), topicName, msg(id, id, "")))
		}
	}
	var members []*member
	join := func() {
		tr := workers[len(members)%len(workers)]
		members = append(members, work(ctx, t, &wg, consume(t, tr))) //nolint:contextcheck // closing has a context of its own
	}
	shared := func(want int) bool {
		more()
		n, all := 0, map[int32]int{}
		for _, m := range members {
			parts := m.partitions()
			if len(parts) == want {
				n++
			}
			for p := range parts {
				all[p]++
			}
		}
		return n == len(members) && len(all) == 8
	}
	join()
	require.Eventually(t, func() bool { return shared(8) }, 20*time.Second, 50*time.Millisecond)
	join()
	require.Eventually(t, func() bool { return shared(4) }, 20*time.Second, 50*time.Millisecond)
	join()
	join()
	require.Eventually(t, func() bool { return shared(2) }, 20*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool { return b.count("leat_deliveries") == 0 }, 20*time.Second, 20*time.Millisecond)
	got := map[string]int{}
	for _, m := range members {
		for id, n := range m.seen() {
			got[id] += n
		}
	}
	require.Len(t, got, len(total))
	for id, n := range got {
		require.Equal(t, 1, n, id)
	}
}

// Topics of one partition are shared too, not all given to one member.
func TestSmallTopicsAreShared(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(func(o *sql.Options) { o.Partitions = 1 })
	var topics []string
	for i := range 4 {
		topics = append(topics, fmt.Sprint("topic-", i))
	}
	all := func(c *transport.ConsumerConfig) { c.Topics = topics }
	first, second := consume(t, tr, all), consume(t, tr, all)
	p := produce(t, tr)
	rounds := 0
	shared := func() bool {
		rounds++
		for _, tp := range topics {
			require.NoError(t, p.Publish(t.Context(), tp, msg(fmt.Sprint(tp, rounds), "", "")))
		}
		var n [2]int
		for i, c := range []transport.Consumer{first, second} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			ds, err := c.Receive(ctx, 100, 1<<20)
			cancel()
			if err == nil {
				n[i] = len(ds)
				settle(t, c, transport.Ack, ds...)
			}
		}
		return n == [2]int{2, 2}
	}
	require.Eventually(t, shared, waitFor, tickFor)
}

// A partition that is to be handed over waits for what is outstanding.
func TestHandOverWaits(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(func(o *sql.Options) { o.Lease = 2 * time.Second })
	publish(t, produce(t, tr), "m", 80)
	c := consume(t, tr)
	ds := receive(t, c, 80)
	second := consume(t, tr)
	leaving := make(map[*transport.Assignment]bool)
	require.Eventually(t, func() bool {
		for _, d := range ds {
			if d.Assignment.Leaving() {
				leaving[d.Assignment] = true
			}
		}
		return len(leaving) == 4
	}, 10*time.Second, 5*time.Millisecond)
	var gone []*transport.Delivery
	for _, d := range ds {
		require.False(t, d.Assignment.Revoked())
		if leaving[d.Assignment] {
			gone = append(gone, d)
		}
	}
	settle(t, c, transport.Ack, gone[1:]...)
	settle(t, c, transport.Release, gone[0])
	again := receive(t, second, 1)
	require.Equal(t, gone[0].ID, again[0].ID)
	quiet(t, second, 100*time.Millisecond)
	require.True(t, gone[0].Assignment.Revoked())
}
