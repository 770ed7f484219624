package runtime

import (
	"bytes"
	"slices"

	"github.com/leat-io/leat/runtime/transport"
)

// park puts an item that runs or closes to sleep; its lane stays taken.
func (q *queue) park(it *item) {
	q.leave(it)
	it.state = parked
	it.large = it.size > q.maxBytes
	if it.large {
		q.bytes -= it.size
		q.hold(it.spell.part, it.behind(), 0)
		return
	}
	q.hold(it.spell.part, it.behind(), 1)
}

// wake makes a parked item ready.
func (q *queue) wake(it *item) {
	q.leave(it)
	q.start(it)
}

func (q *queue) unhold(it *item) {
	if it.large {
		it.large = false
		q.bytes += it.size
		q.hold(it.spell.part, -it.behind(), 0)
		return
	}
	q.hold(it.spell.part, -it.behind(), -1)
}

// behind counts what waits in the lane of an item that is its head.
func (it *item) behind() int {
	if it.lane == nil {
		return 0
	}
	return it.lane.wait.n
}

// hold moves the counts of what is stuck behind parked heads, and of those.
func (q *queue) hold(p *part, stuck, heads int) {
	q.stuck += stuck
	q.parked += heads
	p.held += stuck + heads
}

// heldOver tells whether more than max(1, half) of the credit is parked or
// stuck behind what is.
func (q *queue) heldOver() bool { return q.parked+q.stuck >= max(1, q.prefetch/2) }

// shed removes the newest of what is stuck in a spell, as far as more than
// half of the credit is held by order. Until the spell is open again, nothing
// of it may be admitted: it would overtake what was shed.
func (q *queue) shed(sp *spell) []*item {
	var out []*item
	for it := sp.last; it != nil && q.parked+q.stuck > max(1, q.prefetch/2); {
		older := it.older
		if it.state == queued && it.lane.busy.state == parked {
			it.lane.wait.remove(func(w *item) bool { return w == it })
			q.hold(sp.part, -1, 0)
			if it.leader != nil {
				it.leader.follower, it.leader = nil, nil
			}
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
		if it.leader != nil {
			it.leader.follower, it.leader = nil, nil
		}
		q.forget(it)
		out = append(out, it)
	}
	left := func(it *item) bool { return it.state == gone }
	q.ready.remove(left)
	for l := range lanes {
		n := l.wait.n
		l.wait.remove(left)
		switch {
		case l.busy == nil || l.busy.state == gone:
			q.advance(l)
		case l.busy.state == parked:
			q.hold(sp.part, l.wait.n-n, 0)
		}
	}
	if sp.first == nil {
		delete(q.spells, sp.assignment)
	}
	return out
}

// orphanOf finds the orphan that d may be a redelivery of: the same
// coordinates where those are stable; else the same id, on a later connection,
// marked as redelivered. The body must be equal in both. Each orphan absorbs one.
func (q *queue) orphanOf(d *transport.Delivery) *item {
	for _, o := range q.orphans {
		od := o.d
		if o.follower != nil || od.ID != d.ID || od.Topic != d.Topic {
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
