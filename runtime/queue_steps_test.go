package runtime

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

// receive brings messages that were not seen before; some have the id and the
// body of one that was, as when a publisher repeats itself.
func (m *model) receive(t *rapid.T) {
	o := m.pickSpell(t, m.spells)
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		m.offset++
		d := &transport.Delivery{
			Topic: o.a.Topic, Partition: o.a.Partition, Offset: m.offset,
			Key:         rapid.SampledFrom([]string{"", "a", "ab", "b"}).Draw(t, "key"),
			Redelivered: rapid.Bool().Draw(t, "redelivered"),
		}
		size := rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 100)).Draw(t, "size")
		d.Payload = []byte(strings.Repeat("x", size))
		if rapid.Bool().Draw(t, "with an id") {
			d.ID = fmt.Sprint("m", m.offset)
		}
		if others := m.published(); len(others) > 0 && rapid.IntRange(0, 3).Draw(t, "like another") == 3 {
			other := rapid.SampledFrom(others).Draw(t, "other")
			d.ID, d.Payload, d.Redelivered = other.ID, other.Payload, true
			if rapid.Bool().Draw(t, "with its key") {
				d.Key = other.Key
			}
		}
		if m.admit(t, o, d) {
			m.sent = append(m.sent, d)
		}
	}
}

// published are the messages that are worth repeating.
func (m *model) published() []*transport.Delivery {
	var lost []*transport.Delivery
	for _, h := range m.orphans {
		lost = append(lost, h.d)
	}
	if len(lost) > 0 {
		return lost
	}
	return m.sent
}

// receiveAgain brings messages that the broker has back, most often in order.
// Where coordinates are not stable, they are others.
func (m *model) receiveAgain(t *rapid.T, o *owned) {
	most := rapid.IntRange(1, 4).Draw(t, "messages")
	for _, old := range slices.Clone(m.back) {
		if o.a.Topic != old.Topic || !m.q.unstable && o.a.Partition != old.Partition || rapid.IntRange(0, 3).Draw(t, "later") == 3 {
			continue
		}
		d := *old
		d.Redelivered = rapid.IntRange(0, 4).Draw(t, "not marked") < 4
		if m.q.unstable {
			m.offset++
			d.Partition, d.Offset = o.a.Partition, m.offset
		}
		if rapid.IntRange(0, 9).Draw(t, "topic made again") == 9 {
			d.Payload = append(slices.Clone(d.Payload), 'y')
		}
		if m.admit(t, o, &d) {
			m.back = slices.DeleteFunc(m.back, func(b *transport.Delivery) bool { return b == old })
			most--
		}
		if most == 0 {
			return
		}
	}
}

// receiveLate brings a message of a spell that the queue has forgotten.
func (m *model) receiveLate(t *rapid.T) {
	old := m.pickSpell(t, m.ended)
	if slices.ContainsFunc(m.spells, func(o *owned) bool { return o.a == old.a }) {
		t.Skip("it has begun again")
	}
	m.spells = append(m.spells, &owned{a: old.a})
}

// admit takes a delivery in if there is credit for it.
func (m *model) admit(t *rapid.T, o *owned, d *transport.Delivery) bool {
	n, size := m.credit(t, 0)
	if n > 0 && d.Size() > size {
		n, size = m.credit(t, d.Size())
	}
	if o.leaving || o.sp != nil && o.sp.shut || n < 1 || size < d.Size() {
		return false
	}
	d.Assignment, d.Session = o.a, m.session
	sp, begun := m.q.spellOf(o.a, nil)
	require.Equal(t, o.sp == nil, begun)
	o.sp = sp
	h := &held{d: d, spell: o, lane: m.laneOf(d), phase: ready}
	for _, l := range m.orphans {
		same := l.d.Partition == d.Partition && l.d.Offset == d.Offset
		if m.q.unstable {
			same = d.ID != "" && d.Redelivered && d.Session > l.d.Session && l.lane == h.lane
		}
		if same && l.d.Topic == d.Topic && l.d.ID == d.ID && string(l.d.Payload) == string(d.Payload) && m.follower(l) == nil {
			h.leader, h.tied, l.tied = l, true, true
			break
		}
	}
	h.it = m.q.admit(d, sp, m.keyOf(d))
	for _, other := range m.held {
		require.NotSame(t, other.it, h.it, "an item that is held was handed out again")
	}
	m.held = append(m.held, h)
	return true
}

// credit is what is left of both bounds; if what is needed does not fit, none,
// or that alone where all else waits.
func (m *model) credit(t *rapid.T, need int64) (n int, size int64) {
	n, size = m.q.credit(need)
	left, free := m.q.prefetch-len(m.held), m.q.maxBytes-m.bytes()
	switch {
	case left <= 0 || free <= 0:
		require.Zero(t, n)
		require.Zero(t, size)
	case free < need:
		require.Equal(t, 1, n)
		require.Equal(t, need, size)
	default:
		require.Equal(t, left, n)
		require.Equal(t, free, size)
	}
	return n, size
}

// take starts what could start for the longest time.
func (m *model) take(t *rapid.T) {
	it := m.q.take()
	if it == nil {
		require.False(t, slices.ContainsFunc(m.held, m.startable), "what could start was not taken")
		return
	}
	i := slices.IndexFunc(m.held, func(h *held) bool { return h.it == it })
	require.NotEqual(t, -1, i, "what is not held was taken")
	h := m.held[i]
	require.True(t, m.startable(h))
	for _, other := range m.held {
		require.False(t, m.startable(other) && other.since < h.since, "it was overtaken")
	}
	h.phase = running
}

func (m *model) returned(t *rapid.T) {
	h := m.pick(t, running)
	m.q.returned(h.it)
	h.phase = closing
}

func (m *model) finish(t *rapid.T, h *held, finished bool) {
	f := m.follower(h)
	absorbed := m.q.done(h.it, finished, time.Time{})
	m.drop(h)
	if !finished && !h.lost {
		m.back = append(m.back, h.d)
	}
	switch {
	case f == nil || !finished:
		require.Nil(t, absorbed)
		if f != nil {
			f.leader, f.fails = nil, max(f.fails, h.fails)
		}
	default:
		require.Same(t, f.it, absorbed)
		m.drop(f)
	}
	if !h.lost && !h.tied {
		m.q.recycle(h.it)
	}
}

// drop takes an item out of the model.
func (m *model) unexempt(h *held) {
	if m.exempt == h {
		m.exempt = nil
	}
}

func (m *model) drop(h *held) {
	m.unexempt(h)
	is := func(o *held) bool { return o == h }
	m.held = slices.DeleteFunc(m.held, is)
	m.orphans = slices.DeleteFunc(m.orphans, is)
	m.forgetSpell(h.spell)
}

// forgetSpell moves a spell that has ended and holds nothing any more.
func (m *model) forgetSpell(o *owned) {
	if o.leaving && len(m.of(o)) == 0 && slices.Contains(m.spells, o) {
		m.spells = slices.DeleteFunc(m.spells, func(s *owned) bool { return s == o })
		m.ended = append(m.ended, o)
	}
}

func (m *model) of(o *owned) (some []*held) {
	for _, h := range m.held {
		if h.spell == o {
			some = append(some, h)
		}
	}
	return some
}

func (m *model) fail(t *rapid.T) {
	h := m.pick(t, running, closing)
	h.fails++
	h.it.attempts = h.fails
	if h.lost || h.spell.leaving {
		m.finish(t, h, false)
		return
	}
	m.q.park(h.it)
	h.phase, h.tied = parked, true
	if m.exempt == nil && m.oversize(h) {
		m.exempt = h
	}
}

func (m *model) wake(h *held) {
	m.q.wake(h.it)
	h.phase = ready
	m.unexempt(h)
}

// withdraw ends a spell. What has not started goes back to the broker, what
// runs is lost if the spell is over.
func (m *model) withdraw(t *rapid.T, o *owned, over bool) {
	if o.sp == nil {
		o.leaving = true
		m.spells = slices.DeleteFunc(m.spells, func(s *owned) bool { return s == o })
		return
	}
	var want []*item
	for _, h := range m.of(o) {
		switch {
		case h.phase == ready || h.phase == parked:
			want = append(want, h.it)
			m.back = append(m.back, h.d)
			m.drop(h)
		case over && !h.lost:
			h.lost = true
			m.orphans = append(m.orphans, h)
			m.back = append(m.back, h.d)
		}
	}
	require.Equal(t, want, m.q.withdraw(o.sp, over))
	o.leaving = true
	m.forgetSpell(o)
}

// loseAll ends all spells at once and connects anew.
func (m *model) loseAll(t *rapid.T) {
	for _, o := range slices.Clone(m.spells) {
		m.withdraw(t, o, true)
	}
	m.connect()
	for _, o := range m.spells {
		if rapid.Bool().Draw(t, "redelivered at once") {
			m.receiveAgain(t, o)
		}
	}
}

// shed gives back the newest of what is stuck in each spell, down to the bound.
func (m *model) shed(t *rapid.T) {
	for _, o := range m.spells {
		if o.sp == nil {
			continue
		}
		var want []*item
		for _, h := range slices.Backward(m.of(o)) {
			if m.heldBeyond() && h.lane != "" && m.head(h.lane) != h && m.head(h.lane).phase == parked {
				want = append(want, h.it)
				m.back = append(m.back, h.d)
				m.drop(h)
			}
		}
		slices.Reverse(want)
		require.Equal(t, want, m.q.shed(o.sp))
		require.True(t, o.sp.shut || want == nil)
	}
}

// reopen lets spells admit again from which something was shed.
func (m *model) reopen(*rapid.T) {
	for _, o := range m.spells {
		if o.sp != nil {
			o.sp.shut = false
		}
	}
}

// runOut runs all there is to its end.
func (m *model) runOut(t *rapid.T) {
	for len(m.held) > 0 {
		before := len(m.held)
		for _, h := range slices.Clone(m.held) {
			if h.phase == parked {
				m.wake(h)
			}
		}
		m.check(t)
		for m.q.ready.n > 0 {
			m.take(t)
			m.check(t)
		}
		for _, h := range slices.Clone(m.held) {
			if h.phase == running || h.phase == closing {
				m.finish(t, h, true)
				m.check(t)
			}
		}
		require.Less(t, len(m.held), before, "what is held can neither start nor finish")
	}
	for _, o := range slices.Clone(m.spells) {
		m.withdraw(t, o, false)
	}
	m.check(t)
	require.Zero(t, m.q.count)
	require.Zero(t, m.q.bytes)
	require.Empty(t, m.q.spells)
}
