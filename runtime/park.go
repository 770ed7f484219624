package runtime

import (
	"bytes"
	"slices"
	"time"
)

// park puts an item that runs or closes to sleep; its lane stays taken. One at
// a time that is larger than the whole credit does not count for it meanwhile.
func (q *queue) park(it *item) {
	q.leave(it)
	q.unstall(it)
	it.state = parked
	if it.lane != nil {
		q.hold(it.spell.part, 0, it.lane.wait.n, it.lane.wait.bytes)
	}
	if it.size > q.maxBytes && q.exempt == nil {
		q.exempt = it
		q.bytes -= it.size
		return
	}
	q.hold(it.spell.part, 1, 0, it.size)
}

// unhold takes a parked item out of the counts of what is held by order.
func (q *queue) unhold(it *item) {
	if it.lane != nil {
		q.hold(it.spell.part, 0, -it.lane.wait.n, -it.lane.wait.bytes)
	}
	if q.exempt == it {
		q.exempt = nil
		q.bytes += it.size
		return
	}
	q.hold(it.spell.part, -1, 0, -it.size)
}

// wake makes a parked item ready.
func (q *queue) wake(it *item) {
	q.leave(it)
	q.start(it)
}

// hold moves the counts of what is parked, of what is stuck behind that, and
// of the bytes of both.
func (q *queue) hold(p *part, parked, stuck int, size int64) {
	q.parked += parked
	q.stuck += stuck
	q.heldBytes += size
	p.held += parked + stuck
}

// heldOver tells whether half of the credit, in items or in bytes, is parked or
// stuck behind what is; a single item may always be.
func (q *queue) heldOver() bool {
	n := q.parked + q.stuck
	return n >= max(1, q.prefetch/2) || n > 1 && q.heldBytes >= q.maxBytes/2
}

// stall counts what waits behind an item that runs for very long as held.
func (q *queue) stall(it *item) {
	if l := it.lane; l != nil && !l.stalled {
		l.stalled = true
		q.hold(it.spell.part, 0, l.wait.n, l.wait.bytes)
	}
}

// unstall takes that back, before the item leaves its lane.
func (q *queue) unstall(it *item) {
	if l := it.lane; l != nil && l.stalled {
		l.stalled = false
		q.hold(it.spell.part, 0, -l.wait.n, -l.wait.bytes)
	}
}

// mayPark tells whether an item may sleep here, as far as what is held by order
// allows it.
func (q *queue) mayPark(it *item) bool {
	return !q.heldOver() && (it.size <= q.maxBytes || q.exempt == nil)
}

// clear removes an item that runs or closes, and returns what waited in its
// lane, removed too.
func (q *queue) clear(it *item) []*item {
	q.unstall(it)
	var behind []*item
	if l := it.lane; l != nil {
		for w := l.wait.pop(); w != nil; w = l.wait.pop() {
			q.unfollow(w)
			q.forget(w)
			behind = append(behind, w)
		}
	}
	q.done(it, false, time.Time{})
	return behind
}

// unfollow takes a follower from its leader.
func (q *queue) unfollow(it *item) {
	if it.leader != nil {
		it.leader.follower, it.leader = nil, nil
	}
}

// heldBeyond tells whether more than that is held.
func (q *queue) heldBeyond() bool {
	n := q.parked + q.stuck
	return n > max(1, q.prefetch/2) || n > 1 && q.heldBytes > q.maxBytes/2
}

// shed removes the newest of what is stuck in a spell, as far as more than
// half of the credit is held by order. Until the spell is open again, nothing
// of it may be admitted: it would overtake what was shed.
func (q *queue) shed(sp *spell) []*item {
	var out []*item
	for it := sp.last; it != nil && q.heldBeyond(); {
		older := it.older
		if it.state == queued && it.lane.blocked() {
			it.lane.wait.remove(func(w *item) bool { return w == it })
			q.hold(sp.part, 0, -1, -it.size)
			q.unfollow(it)
			q.forget(it)
			out = append(out, it)
			sp.shut = true
		}
		it = older
	}
	slices.Reverse(out)
	return out
}

// withdraw ends a spell, as far as it can now: what has not started, parked
// items among it, is removed and returned in the order it came. With over,
// what runs or closes becomes an orphan: it keeps its slot and lane.
func (q *queue) withdraw(sp *spell, over bool) []*item {
	sp.leaving = true
	var out []*item
	lanes := make(map[*lane]struct{})
	for next := sp.first; next != nil; {
		it := next
		next = it.newer
		switch it.state {
		case running, closing:
			if over && !it.lost {
				it.lost = true
				q.orphans = append(q.orphans, it)
			}
			continue
		case parked:
			q.leave(it)
			if it.lane != nil {
				it.lane.busy = nil
				lanes[it.lane] = struct{}{}
			}
		case ready, queued:
			if it.lane != nil {
				lanes[it.lane] = struct{}{}
			}
		case gone, following:
		}
		q.unfollow(it)
		q.forget(it)
		out = append(out, it)
	}
	left := func(it *item) bool { return it.state == gone }
	q.ready.remove(left)
	for l := range lanes {
		n, size := l.wait.n, l.wait.bytes
		l.wait.remove(left)
		switch {
		case l.busy == nil || l.busy.state == gone:
			q.advance(l)
		case l.blocked():
			q.hold(sp.part, 0, l.wait.n-n, l.wait.bytes-size)
		}
	}
	q.forgetSpell(sp)
	return out
}

// orphanOf finds the orphan that an item may be a redelivery of, in the same
// lane: the same coordinates where those are stable; else the same id, on a later connection,
// marked as redelivered. The body must be equal in both. Each orphan absorbs one.
func (q *queue) orphanOf(it *item) *item {
	d := it.d
	for _, o := range q.orphans {
		od := o.d
		if o.follower != nil || o.lane != it.lane || od.ID != d.ID || od.Topic != d.Topic {
			continue
		}
		if q.unstable {
			if d.ID == "" || !d.Redelivered || d.Session <= od.Session {
				continue
			}
		} else if od.Partition != d.Partition || od.Offset != d.Offset {
			continue
		}
		if bytes.Equal(od.Payload, d.Payload) {
			return o
		}
	}
	return nil
}
