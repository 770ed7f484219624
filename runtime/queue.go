package runtime

import (
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// queue holds every delivery of one consumer between Receive and settlement:
// the credit, the lanes and what may run next. It is a plain state machine
// with no clock, lock or goroutine of its own; the consumer's mutex guards it.
type queue struct {
	order    transport.Order
	prefetch int
	maxBytes int64
	unstable bool // coordinates do not name a message

	parts  map[partID]*part
	spells map[*transport.Assignment]*spell
	ready  list

	count     int   // items held
	bytes     int64 // of those
	running   int   // slots taken
	closing   int
	parked    int   // but for the exempt one
	stuck     int   // queued behind a parked head
	heldBytes int64 // of those two
	exempt    *item // parked, larger than the whole credit, and not counted for it
	vacant    int   // lanes that hold nothing
	orphans   []*item
	free      *item // recycled ones
}

func newQueue(p transport.Policy, stable bool) *queue {
	return &queue{
		unstable: !stable,
		order:    p.Order, prefetch: p.Prefetch, maxBytes: p.PrefetchBytes,
		parts: make(map[partID]*part), spells: make(map[*transport.Assignment]*spell),
	}
}

// credit is what may be received now; need is what a message that was too
// large asked for. Where that is more than is left, it is let in by itself, and
// nothing else before there is room again: so a large message waits for no
// slow one, and no more than one beyond the bytes is ever held.
func (q *queue) credit(need int64) (n int, size int64) {
	n, size = q.prefetch-q.count, q.maxBytes-q.bytes
	switch {
	case n <= 0 || size <= 0:
		return 0, 0
	case size < need:
		return 1, need
	default:
		return n, size
	}
}

// spellOf finds or begins the spell of an assignment.
func (q *queue) spellOf(a *transport.Assignment, s *session) (sp *spell, begun bool) {
	if sp = q.spells[a]; sp != nil {
		return sp, false
	}
	id := partID{a.Topic, a.Partition}
	p := q.parts[id]
	if p == nil {
		p = &part{lanes: make(map[string]*lane)}
		q.parts[id] = p
	}
	sp = &spell{assignment: a, part: p, session: s}
	q.spells[a] = sp
	return sp, true
}

// admit takes a delivery into its lane.
func (q *queue) admit(d *transport.Delivery, sp *spell, key string) *item {
	it := q.free
	if it != nil {
		q.free, it.next = it.next, nil
	} else {
		it = new(item)
	}
	it.d, it.spell, it.size = d, sp, d.Size()
	if d.Attempts > 0 {
		it.attempts, it.first, it.lastError = d.Attempts, d.FirstFailure, d.LastError
	}
	q.count++
	q.bytes += it.size
	sp.link(it)
	it.lane = q.laneOf(sp.part, key)
	if len(q.orphans) > 0 {
		if it.leader = q.orphanOf(it); it.leader != nil {
			it.leader.follower = it
			if it.lane == nil {
				it.state = following
				return it
			}
		}
	}
	switch l := it.lane; {
	case l == nil:
		q.start(it)
	case l.busy == nil:
		l.busy = it
		q.vacant--
		q.start(it)
	default:
		it.state = queued
		l.wait.push(it)
		if l.blocked() {
			q.hold(sp.part, 0, 1, it.size)
		}
	}
	return it
}

// start lets an item run as soon as there is a slot.
func (q *queue) start(it *item) {
	it.state = ready
	q.ready.push(it)
}

// laneOf finds the lane of a key; nil where its messages wait for no other.
func (q *queue) laneOf(p *part, key string) *lane {
	switch q.order {
	case transport.OrderPartition:
		key = ""
	case transport.OrderKey:
		if key == "" {
			return nil
		}
	case transport.OrderNone:
		return nil
	}
	l := p.lanes[key]
	if l == nil {
		if q.vacant > 2*q.prefetch {
			q.sweep()
		}
		l = new(lane)
		p.lanes[key] = l
		q.vacant++
	}
	return l
}

// sweep forgets lanes that hold nothing. They are kept until they are many,
// since a key that came once is likely to come again.
func (q *queue) sweep() {
	for _, p := range q.parts {
		for k, l := range p.lanes {
			if l.busy == nil {
				delete(p.lanes, k)
			}
		}
	}
	q.vacant = 0
}

// take gives the next item its slot; nil if nothing is ready.
func (q *queue) take() *item {
	it := q.ready.pop()
	if it != nil {
		it.state = running
		q.running++
	}
	return it
}

// returned frees the slot of an item whose handler has returned.
func (q *queue) returned(it *item) {
	q.leave(it)
	q.closing++
	it.state = closing
}

// leave takes an item out of the count of its state.
func (q *queue) leave(it *item) {
	switch it.state {
	case running:
		q.running--
	case closing:
		q.closing--
	case parked:
		q.unhold(it)
	case gone, queued, ready, following:
	}
}

// done ends an item that runs or closes: credit, bytes and lane are free. A
// follower is absorbed, and returned, if the message needs no other run; else
// it takes over what is known of the attempts and runs in its turn, no earlier
// than due.
func (q *queue) done(it *item, finished bool, due time.Time) (absorbed *item) {
	q.leave(it)
	q.unstall(it)
	if f := it.follower; f != nil {
		f.leader, it.follower = nil, nil
		if finished {
			if f.lane != nil {
				f.lane.wait.remove(func(w *item) bool { return w == f })
			}
			q.forget(f)
			absorbed = f
		} else {
			if it.attempts > f.attempts {
				f.attempts, f.first, f.lastError, f.due = it.attempts, it.first, it.lastError, due
			}
			if f.state == following {
				q.start(f)
			}
		}
	}
	q.forget(it)
	q.advance(it.lane)
	return absorbed
}

// advance makes the next item of a lane ready.
func (q *queue) advance(l *lane) {
	if l == nil {
		return
	}
	if l.busy = l.wait.pop(); l.busy == nil {
		q.vacant++
		return
	}
	q.start(l.busy)
}

// forget gives back an item's credit.
func (q *queue) forget(it *item) {
	q.count--
	q.bytes -= it.size
	it.spell.unlink(it)
	if it.lost {
		q.orphans = slices.DeleteFunc(q.orphans, func(o *item) bool { return o == it })
	}
	q.forgetSpell(it.spell)
	it.state = gone
}

// forgetSpell lets go of a spell that has ended, once nothing of it is held.
func (q *queue) forgetSpell(sp *spell) {
	if sp.leaving && sp.first == nil && q.spells[sp.assignment] == sp {
		delete(q.spells, sp.assignment)
	}
}

// recycle keeps an item that nobody refers to any more for the next admit.
func (q *queue) recycle(it *item) {
	if it.attempts > 0 {
		*it = item{}
	}
	it.d, it.spell, it.lane = nil, nil, nil
	it.next, q.free = q.free, it
}
