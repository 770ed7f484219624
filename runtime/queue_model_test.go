package runtime

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

// counts are those that a queue keeps.
type counts struct {
	count, running, closing, parked, stuck, ready int
	bytes, heldBytes                              int64
	held                                          map[partID]int
}

func (c counts) byOrder() int { return c.parked + c.stuck }

// heldBeyond tells whether more than the bound is held by order.
func (m *model) heldBeyond() bool {
	c := m.recount()
	n := c.byOrder()
	return n > max(1, m.q.prefetch/2) || n > 1 && c.heldBytes > m.q.maxBytes/2
}

func (m *model) recount() counts {
	c := counts{count: len(m.held), bytes: m.bytes(), held: make(map[partID]int)}
	for _, h := range m.held {
		part := partID{h.d.Topic, h.d.Partition}
		switch {
		case h.phase == running:
			c.running++
		case h.phase == closing:
			c.closing++
		case h.phase == parked && h != m.exempt:
			c.parked++
			c.held[part]++
			c.heldBytes += h.d.Size()
		case h.phase == ready && h.lane != "" && m.head(h.lane).phase == parked:
			c.stuck++
			c.held[part]++
			c.heldBytes += h.d.Size()
		case m.startable(h):
			c.ready++
		}
	}
	return c
}

// check compares all that a queue consists of with the model.
func (m *model) check(t *rapid.T) {
	m.step++
	want := m.recount()
	got := counts{
		count: m.q.count, running: m.q.running, closing: m.q.closing, parked: m.q.parked, stuck: m.q.stuck,
		ready: m.q.ready.n, bytes: m.q.bytes, heldBytes: m.q.heldBytes, held: make(map[partID]int),
	}
	for id, p := range m.q.parts {
		if p.held != 0 {
			got.held[id] = p.held
		}
	}
	require.Equal(t, want, got)
	n := want.byOrder()
	require.Equal(t, n >= max(1, m.q.prefetch/2) || n > 1 && want.heldBytes >= m.q.maxBytes/2, m.q.heldOver())
	require.LessOrEqual(t, len(m.held), m.q.prefetch)
	var largest int64
	for _, h := range m.held {
		largest = max(largest, h.d.Size())
	}
	require.LessOrEqual(t, m.bytes(), m.q.maxBytes+2*largest, "one that is let in alone, and the exempt one awake again")

	m.checkItems(t)
	m.checkLanes(t)
	m.checkSpells(t)
}

func (m *model) checkItems(t *rapid.T) {
	var canStart, lost []*item
	for _, h := range m.held {
		state := h.phase
		switch {
		case m.startable(h):
			canStart = append(canStart, h.it)
			if h.since == 0 {
				h.since = m.step
			}
		case state == ready && h.lane == "":
			state, h.since = following, 0
		case state == ready:
			state, h.since = queued, 0
		default:
			h.since = 0
		}
		require.Equal(t, state, h.it.state)
		require.Same(t, h.d, h.it.d)
		require.Equal(t, h.lost, h.it.lost)
		require.Equal(t, h.fails, h.it.attempts)
		require.Equal(t, h.lane == "", h.it.lane == nil)
		require.Same(t, itemOf(h.leader), h.it.leader, "leader")
		require.Same(t, itemOf(m.follower(h)), h.it.follower, "follower")
	}
	require.ElementsMatch(t, canStart, itemsOf(t, m.q.ready))
	for _, h := range m.orphans {
		lost = append(lost, h.it)
	}
	require.True(t, slices.Equal(lost, m.q.orphans), "orphans")

	free := make(map[*item]bool)
	for it := m.q.free; it != nil; it = it.next {
		require.False(t, free[it], "recycled twice")
		free[it] = true
	}
	for _, h := range m.held {
		require.False(t, free[h.it], "recycled while it is held")
	}
}

func (m *model) checkLanes(t *rapid.T) {
	lanes := make(map[string][]*item)
	for _, h := range m.held {
		if h.lane != "" {
			lanes[h.lane] = append(lanes[h.lane], h.it)
		}
	}
	vacant := 0
	for id, p := range m.q.parts {
		for key, l := range p.lanes {
			name := fmt.Sprint(id.topic, "/", id.partition, "/", key)
			if l.busy == nil {
				require.Zero(t, l.wait.n)
				require.NotContains(t, lanes, name)
				vacant++
				continue
			}
			require.True(t, slices.Equal(lanes[name], append([]*item{l.busy}, itemsOf(t, l.wait)...)), "lane %s", name)
			require.Same(t, l, l.busy.lane)
			delete(lanes, name)
		}
	}
	require.Empty(t, lanes, "lanes that hold something and are not found")
	require.Equal(t, vacant, m.q.vacant)
	require.LessOrEqual(t, vacant, 2*m.q.prefetch+m.q.prefetch+1)
}

func (m *model) checkSpells(t *rapid.T) {
	want := make(map[*transport.Assignment]*spell)
	for _, o := range m.spells {
		if o.sp == nil {
			continue
		}
		want[o.a] = o.sp
		require.Equal(t, o.leaving, o.sp.leaving)
		var items, found, reverse []*item
		for _, h := range m.of(o) {
			items = append(items, h.it)
		}
		for it := o.sp.first; it != nil; it = it.newer {
			found = append(found, it)
		}
		for it := o.sp.last; it != nil; it = it.older {
			reverse = append(reverse, it)
		}
		slices.Reverse(reverse)
		require.True(t, slices.Equal(items, found), "items of a spell")
		require.True(t, slices.Equal(items, reverse), "items of a spell, from its end")
	}
	require.True(t, maps.Equal(want, m.q.spells), "spells")
}

func itemOf(h *held) *item {
	if h == nil {
		return nil
	}
	return h.it
}

// itemsOf walks a list and holds it to what it says of itself.
func itemsOf(t *rapid.T, l list) (items []*item) {
	for it := l.head; it != nil; it = it.next {
		items = append(items, it)
	}
	require.Len(t, items, l.n)
	require.True(t, l.n == 0 && l.tail == nil || l.n > 0 && items[l.n-1] == l.tail, "tail of a list")
	return items
}
