package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// admitted makes a queue with one delivery for each size, all of which run.
func admitted(t *testing.T, p transport.Policy, sizes ...int) (*queue, []*item) {
	t.Helper()
	q := newQueue(p, true)
	sp, _ := q.spellOf(transport.NewAssignment(t.Context(), "t", 0), nil)
	items := make([]*item, len(sizes))
	for i, size := range sizes {
		q.admit(&transport.Delivery{Topic: "t", Offset: int64(i), Payload: make([]byte, size)}, sp, "")
		items[i] = q.take()
	}
	return q, items
}

// TestHeldOver holds the bound on what waits: max(1, half) of the credit.
func TestHeldOver(t *testing.T) {
	t.Parallel()
	for prefetch, bound := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 16: 8, 17: 8} {
		t.Run(fmt.Sprint("prefetch ", prefetch), func(t *testing.T) {
			t.Parallel()
			policy := transport.Policy{Order: transport.OrderNone, Prefetch: prefetch, PrefetchBytes: 10}
			q, items := admitted(t, policy, make([]int, bound)...)
			for _, it := range items {
				require.False(t, q.heldOver())
				q.park(it)
			}
			require.True(t, q.heldOver())
			q.wake(items[0])
			require.False(t, q.heldOver())
		})
	}

	t.Run("what is stuck behind a parked head counts", func(t *testing.T) {
		t.Parallel()
		q, items := admitted(t, transport.Policy{Order: transport.OrderPartition, Prefetch: 6, PrefetchBytes: 10}, 1, 1, 1)
		require.Nil(t, items[1])
		require.False(t, q.heldOver())
		q.park(items[0])
		require.True(t, q.heldOver())
	})

	t.Run("what is larger than the whole credit does not, but what is behind it does", func(t *testing.T) {
		t.Parallel()
		q, items := admitted(t, transport.Policy{Order: transport.OrderPartition, Prefetch: 4, PrefetchBytes: 10}, 11, 1)
		q.park(items[0])
		require.False(t, q.heldOver())
		q.admit(&transport.Delivery{Topic: "t", Offset: 9}, items[0].spell, "")
		require.True(t, q.heldOver())
	})
}

// TestCredit holds how bytes are given out, to what is larger than all of them too.
func TestCredit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		held  []int
		need  int64
		parks bool // the first of them
		n     int
		size  int64
	}{
		"nothing held":                                 {n: 4, size: 100},
		"something held":                               {held: []int{30, 1}, n: 2, size: 69},
		"all deliveries are taken":                     {held: []int{1, 1, 1, 1}},
		"all bytes are taken":                          {held: []int{99, 1}},
		"it needs more than is free":                   {held: []int{30}, need: 71, n: 1, size: 71},
		"it needs what is free":                        {held: []int{30}, need: 70, n: 3, size: 70},
		"larger than all, nothing held":                {need: 101, n: 1, size: 101},
		"larger than all, only empty ones held":        {held: []int{0}, need: 101, n: 1, size: 101},
		"larger than all, something held":              {held: []int{1}, need: 101, n: 1, size: 101},
		"one larger than all runs":                     {held: []int{101}},
		"one larger than all is parked":                {held: []int{101}, parks: true, n: 3, size: 100},
		"one larger than all is parked, another comes": {held: []int{101}, parks: true, need: 102, n: 1, size: 102},
		"one that is not larger is parked":             {held: []int{100}, parks: true},
		"what is parked makes room for one alone":      {held: []int{60}, parks: true, need: 50, n: 1, size: 50},
		"but not beyond the whole credit":              {held: []int{101}, need: 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, items := admitted(t, transport.Policy{Order: transport.OrderNone, Prefetch: 4, PrefetchBytes: 100}, test.held...)
			if test.parks {
				q.park(items[0])
			}
			n, size := q.credit(test.need)
			require.Equal(t, test.n, n)
			require.Equal(t, test.size, size)
		})
	}
}

// TestLargeBackFromItsWait: the bytes of one larger than the whole credit
// count again once it is awake, and nothing is let in beside it.
func TestLargeBackFromItsWait(t *testing.T) {
	t.Parallel()
	q, items := admitted(t, transport.Policy{Order: transport.OrderNone, Prefetch: 4, PrefetchBytes: 100}, 150)
	q.park(items[0])
	require.Zero(t, q.bytes)
	q.wake(items[0])
	require.EqualValues(t, 150, q.bytes)
	n, _ := q.credit(0)
	require.Zero(t, n)
	require.Same(t, items[0], q.take())
	q.done(items[0], true, time.Time{})
	require.Zero(t, q.bytes)
}

// TestIdleLanesAreSwept: lanes of keys that do not come again are forgotten,
// those that hold something never.
func TestIdleLanesAreSwept(t *testing.T) {
	t.Parallel()
	const prefetch = 4
	q := newQueue(transport.Policy{Order: transport.OrderKey, Prefetch: prefetch, PrefetchBytes: 100}, true)
	sp, _ := q.spellOf(transport.NewAssignment(t.Context(), "t", 0), nil)
	admit := func(key string, offset int64) *item {
		return q.admit(&transport.Delivery{Topic: "t", Key: key, Offset: offset}, sp, key)
	}
	runs, waits := admit("kept", 0), admit("kept", 1)
	require.Same(t, runs, q.take())
	most := 0
	for i := range int64(100 * prefetch) {
		it := admit(fmt.Sprint("once-", i), i+2)
		require.Same(t, it, q.take())
		q.done(it, true, time.Time{})
		q.recycle(it)
		most = max(most, q.vacant)
		require.Len(t, sp.part.lanes, q.vacant+1)
	}
	require.Equal(t, 2*prefetch+1, most, "lanes that hold nothing")
	require.Same(t, runs.lane, sp.part.lanes["kept"])
	require.Nil(t, q.take(), "its lane is taken")
	q.done(runs, true, time.Time{})
	require.Same(t, waits, q.take())
}

// TestOrphanOfAnotherLane: only a redelivery in the same lane may wait for an orphan.
func TestOrphanOfAnotherLane(t *testing.T) {
	t.Parallel()
	q := newQueue(transport.Policy{Order: transport.OrderKey, Prefetch: 4, PrefetchBytes: 100}, false)
	first, _ := q.spellOf(transport.NewAssignment(t.Context(), "t", 0), nil)
	q.admit(&transport.Delivery{Topic: "t", ID: "x", Key: "a", Session: 1}, first, "a")
	leader := q.take()
	q.withdraw(first, true)

	second, _ := q.spellOf(transport.NewAssignment(t.Context(), "t", 0), nil)
	other := q.admit(&transport.Delivery{Topic: "t", ID: "x", Key: "b", Redelivered: true, Session: 2}, second, "b")
	require.Same(t, other, q.take(), "another lane: it runs beside it")
	require.Nil(t, q.done(leader, true, time.Time{}), "what runs is not absorbed")
	q.done(other, true, time.Time{})
	require.Zero(t, q.count)
	require.Zero(t, q.running)
}

// TestSpellEndsTwice: a second end of a spell leaves a newer one of its assignment alone.
func TestSpellEndsTwice(t *testing.T) {
	t.Parallel()
	q := newQueue(transport.Policy{Order: transport.OrderNone, Prefetch: 4, PrefetchBytes: 100}, true)
	a := transport.NewAssignment(t.Context(), "t", 0)
	first, _ := q.spellOf(a, nil)
	q.withdraw(first, false)
	second, begun := q.spellOf(a, nil) // a batch that was under way
	require.True(t, begun)
	q.admit(&transport.Delivery{Topic: "t"}, second, "")
	q.withdraw(first, true) // Leave, then Revoke
	require.Same(t, second, q.spells[a])
}

// TestFailureWhileLeaving: what fails while its partition leaves is given back, not parked.
func TestFailureWhileLeaving(t *testing.T) {
	t.Parallel()
	p := transport.Policy{Order: transport.OrderKey, Prefetch: 4, PrefetchBytes: 100}.Defaults("c", transport.Capabilities{})
	c := &consumer{q: newQueue(p, true), p: p, log: slog.New(slog.DiscardHandler), base: context.Background()}
	sp, _ := c.q.spellOf(transport.NewAssignment(t.Context(), "t", 0), newSession(t.Context(), nil, c))
	c.session = sp.session
	c.q.admit(&transport.Delivery{Topic: "t", Key: "a"}, sp, "a")
	it := c.q.take()
	require.Empty(t, c.q.withdraw(sp, false))
	c.again(it, &result{outcome: transport.Retried, err: errors.New("boom"), n: 1, wait: time.Hour})
	require.Zero(t, c.q.count, "released, not parked")
}

// TestStuckBytesHoldOver: the bound on what waits counts bytes too.
func TestStuckBytesHoldOver(t *testing.T) {
	t.Parallel()
	q, items := admitted(t, transport.Policy{Order: transport.OrderPartition, Prefetch: 100, PrefetchBytes: 100}, 50, 50)
	q.park(items[0])
	n, _ := q.credit(0)
	require.Zero(t, n)
	require.True(t, q.heldOver(), "all bytes are held by order, and nothing says so")
}

// TestManyLargeParked: only one at a time that is larger than the whole credit does not count.
func TestManyLargeParked(t *testing.T) {
	t.Parallel()
	q := newQueue(transport.Policy{Order: transport.OrderNone, Prefetch: 100, PrefetchBytes: 100}, true)
	sp, _ := q.spellOf(transport.NewAssignment(t.Context(), "t", 0), nil)
	var sum int64
	for i := range int64(100) {
		if n, _ := q.credit(1000); n == 0 {
			break
		}
		q.admit(&transport.Delivery{Topic: "t", Offset: i, Payload: make([]byte, 1000)}, sp, "")
		q.park(q.take())
		sum += 1000
	}
	require.LessOrEqual(t, sum, int64(2000))
	require.False(t, q.heldOver())
}

// TestStall: what waits behind an item that is stalled counts as held, what
// comes later too, until the item leaves its lane in whatever way.
func TestStall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end   func(q *queue, it *item)
		held  int // parked and stuck after it
		count int
	}{
		"done":                       {end: func(q *queue, it *item) { q.done(it, true, time.Time{}) }, count: 3},
		"confirmed for long":         {end: func(q *queue, it *item) { q.returned(it) }, held: 3, count: 4},
		"confirmed, then done":       {end: func(q *queue, it *item) { q.returned(it); q.done(it, true, time.Time{}) }, count: 3},
		"parked":                     {end: func(q *queue, it *item) { q.park(it) }, held: 4, count: 4},
		"parked, awake":              {end: func(q *queue, it *item) { q.park(it); q.wake(it) }, count: 4},
		"given back with the rest":   {end: func(q *queue, it *item) { q.clear(it) }},
		"its partition leaves":       {end: func(q *queue, it *item) { q.withdraw(it.spell, false) }, count: 1},
		"its partition is revoked":   {end: func(q *queue, it *item) { q.withdraw(it.spell, true) }, count: 1},
		"revoked, then done":         {end: func(q *queue, it *item) { q.withdraw(it.spell, true); q.done(it, true, time.Time{}) }},
		"stalled again":              {end: func(q *queue, it *item) { q.stall(it) }, held: 3, count: 4},
		"shed to half of the credit": {end: func(q *queue, it *item) { q.prefetch = 4; q.shed(it.spell) }, held: 2, count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, items := admitted(t, transport.Policy{Order: transport.OrderPartition, Prefetch: 8, PrefetchBytes: 100}, 1, 1, 1)
			it, sp := items[0], items[0].spell
			q.stall(it)
			require.Equal(t, 2, q.stuck)
			q.admit(&transport.Delivery{Topic: "t", Offset: 3, Payload: make([]byte, 1)}, sp, "")
			require.Equal(t, 3, q.stuck)
			require.EqualValues(t, 3, q.heldBytes)
			require.False(t, q.heldOver())

			test.end(q, it)
			require.Equal(t, test.held, q.parked+q.stuck)
			require.EqualValues(t, test.held, q.heldBytes)
			require.Equal(t, test.held, sp.part.held)
			require.Equal(t, test.count, q.count)

			switch it.state {
			case parked:
				q.wake(it)
			case running, closing:
				q.done(it, true, time.Time{})
			case gone, queued, ready, following:
			}
			for it := q.take(); it != nil; it = q.take() {
				q.admit(&transport.Delivery{Topic: "t", Offset: 9}, sp, "") // holds up nothing
				require.Zero(t, q.stuck)
				q.done(it, true, time.Time{})
				q.done(q.take(), true, time.Time{})
			}
			require.Zero(t, q.count+q.running+q.closing+q.parked+q.stuck+sp.part.held)
			require.Zero(t, q.bytes+q.heldBytes)
		})
	}

	t.Run("an item without a lane holds up nothing", func(t *testing.T) {
		t.Parallel()
		q, items := admitted(t, transport.Policy{Order: transport.OrderNone, Prefetch: 8, PrefetchBytes: 100}, 1, 1)
		q.stall(items[0])
		require.Zero(t, q.stuck)
	})
}

// TestClear: what is given back leaves nothing behind, and a redelivery that
// waited for some of it is on its own.
func TestClear(t *testing.T) {
	t.Parallel()
	q, items := admitted(t, transport.Policy{Order: transport.OrderPartition, Prefetch: 8, PrefetchBytes: 100}, 1, 1, 1)
	it := items[0]
	behind := q.clear(it)
	require.Len(t, behind, 2)
	require.Less(t, behind[0].d.Offset, behind[1].d.Offset)
	require.Zero(t, q.count+q.running+q.parked+q.stuck)
	require.Zero(t, q.bytes+q.heldBytes)
	require.Nil(t, q.take())
	require.Equal(t, 1, q.vacant)
}

// TestFindStalls: only an attempt that has run for stallAfter holds up its
// lane, not one that is being confirmed, and not an idle worker.
func TestFindStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idleConsumer(t)
		c.q = newQueue(transport.Policy{Order: transport.OrderKey, Prefetch: 16, PrefetchBytes: 100}, true)
		a := transport.NewAssignment(t.Context(), "in", 0)
		sp, _ := c.q.spellOf(a, c.session)
		var offset int64
		begin := func(key string) *worker {
			for range 2 {
				c.q.admit(&transport.Delivery{Topic: "in", Offset: offset, Key: key, Assignment: a}, sp, key)
				offset++
			}
			w := &worker{it: c.q.take()}
			w.since.Store(int64(time.Since(c.epoch)))
			c.pool[w] = struct{}{}
			return w
		}
		c.pool[&worker{}] = struct{}{}
		begin("slow")
		confirms := begin("confirms")
		c.q.returned(confirms.it)
		confirms.since.Store(0)
		time.Sleep(stallAfter - time.Millisecond)
		begin("young")
		c.findStalls()
		require.Zero(t, c.q.stuck)
		time.Sleep(time.Millisecond)
		c.findStalls()
		c.findStalls()
		require.Equal(t, 1, c.q.stuck)
		require.True(t, sp.part.lanes["slow"].stalled)
	})
}
