package runtime

import (
	"bytes"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// queue holds every delivery of one consumer between Receive and settlement:
// the credit, the lanes and what may run next. It is a plain state machine
// with no clock, lock or goroutine of its own; the consumer's mutex guards it.
type queue struct {
	order    transport.Order
	key      func(*transport.Delivery) string
	prefetch int
	maxBytes int64
	unstable bool // coordinates do not name a message

	parts  map[partID]*part
	spells map[*transport.Assignment]*spell
	ready  list

	count   int   // items held
	bytes   int64 // of those
	running int   // slots taken
	closing int
	parked  int // but for those larger than the whole credit
	stuck   int // queued behind a parked head
	vacant  int // lanes that hold nothing
	orphans []*item
	free    *item // recycled ones
}

type partID struct {
	topic     string
	partition int32
}

// part is one partition or queue. It outlives the spells of owning it, so that
// the lane of a handler that still runs is there when its message comes back.
type part struct {
	lanes map[string]*lane
	held  int // parked or stuck here
}

// spell is one [transport.Assignment] as the queue sees it.
type spell struct {
	assignment *transport.Assignment
	part       *part
	session    *session
	first      *item // all items of this spell, in the order they came
	last       *item
	leaving    bool // nothing of it starts any more
	paused     bool // as the transport was told
}

// lane is the queue of one ordering unit. At most one of its items is ready,
// runs, is being confirmed or is parked: busy. The others wait in order.
type lane struct {
	busy *item
	wait list
}

type state uint8

const (
	gone      state = iota // not held
	queued                 // waits in its lane
	ready                  // may start
	running                // holds a slot
	closing                // the handler has returned; outputs, hooks or dead letter are not confirmed
	parked                 // waits for its next attempt
	following              // without a lane: waits for an orphan that may be the same message
)

// item is one delivery while it is held.
type item struct {
	d     *transport.Delivery
	spell *spell
	lane  *lane // nil: a lane of its own
	next  *item // in a list
	size  int64
	state state
	large bool // parked and larger than the whole credit, which it does not count for
	lost  bool // its spell is over: settling it changes nothing

	newer, older *item // in its spell
	follower     *item // a redelivery of this orphan
	leader       *item // the orphan this may be a redelivery of

	attempts  int // failed so far
	first     time.Time
	lastError string
	timer     *time.Timer // of parked
}

// list is a FIFO of items, linked through them.
type list struct {
	head, tail *item
	n          int
}

func (l *list) push(it *item) {
	it.next = nil
	if l.tail == nil {
		l.head = it
	} else {
		l.tail.next = it
	}
	l.tail = it
	l.n++
}

func (l *list) pop() *item {
	it := l.head
	if it == nil {
		return nil
	}
	l.head = it.next
	if l.head == nil {
		l.tail = nil
	}
	it.next = nil
	l.n--
	return it
}

// take removes the items that match, in order.
func (l *list) take(match func(*item) bool) []*item {
	var out []*item
	old := *l
	*l = list{}
	for it := old.pop(); it != nil; it = old.pop() {
		if match(it) {
			out = append(out, it)
		} else {
			l.push(it)
		}
	}
	return out
}

func newQueue(p transport.Policy, stable bool) *queue {
	return &queue{
		unstable: !stable,
		order:    p.Order, key: p.OrderKey, prefetch: p.Prefetch, maxBytes: p.PrefetchBytes,
		parts: make(map[partID]*part), spells: make(map[*transport.Assignment]*spell),
	}
}

// credit is what may be received now; need is what a message that was too
// large asked for. One larger than the whole credit is let in when no other
// bytes are held.
func (q *queue) credit(need int64) (n int, size int64) {
	n, size = q.prefetch-q.count, q.maxBytes-q.bytes
	if need > q.maxBytes && q.bytes == 0 {
		return n, need
	}
	if size < max(need, 1) {
		return 0, 0
	}
	return n, size
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
func (q *queue) admit(d *transport.Delivery, sp *spell) *item {
	it := q.free
	if it != nil {
		q.free = it.next
		*it = item{}
	} else {
		it = new(item)
	}
	it.d, it.spell, it.size = d, sp, d.Size()
	it.attempts, it.first, it.lastError = d.Attempts, d.FirstFailure, d.LastError
	q.count++
	q.bytes += it.size
	sp.link(it)
	it.lane = q.laneOf(sp.part, d)
	if len(q.orphans) > 0 {
		if it.leader = q.orphanOf(d); it.leader != nil {
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
		if l.busy.state == parked {
			q.hold(sp.part, 1, 0)
		}
	}
	return it
}

// start lets an item run as soon as there is a slot.
func (q *queue) start(it *item) {
	it.state = ready
	q.ready.push(it)
}

// laneOf finds the lane of a delivery; nil where it need not wait for any other.
func (q *queue) laneOf(p *part, d *transport.Delivery) *lane {
	key := ""
	switch q.order {
	case transport.OrderPartition:
	case transport.OrderKey:
		if key = d.Key; q.key != nil {
			key = q.key(d)
		}
		if key == "" {
			return nil
		}
	default:
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
// follower is absorbed, and returned, if the message needs no other run;
// else it takes over what is known of the attempts and runs in its turn.
func (q *queue) done(it *item, finished bool) (absorbed *item) {
	q.leave(it)
	if f := it.follower; f != nil {
		f.leader, it.follower = nil, nil
		if finished {
			if f.lane != nil {
				f.lane.wait.take(func(w *item) bool { return w == f })
			}
			q.forget(f)
			absorbed = f
		} else {
			if it.attempts > f.attempts {
				f.attempts, f.first, f.lastError = it.attempts, it.first, it.lastError
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
	if !it.large {
		q.bytes -= it.size
	}
	it.spell.unlink(it)
	if it.lost {
		q.orphans = slices.DeleteFunc(q.orphans, func(o *item) bool { return o == it })
	}
	if it.spell.leaving && it.spell.first == nil {
		delete(q.spells, it.spell.assignment)
	}
	it.state = gone
}

// recycle keeps an item that nobody refers to any more for the next admit.
func (q *queue) recycle(it *item) {
	it.d, it.spell, it.lane = nil, nil, nil
	it.next, q.free = q.free, it
}

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

// withdraw ends a spell, as far as it can now: what has not started, parked
// items among it, is removed and returned in the order it came. With over,
// what runs or closes becomes an orphan: it keeps its slot and lane.
func (q *queue) withdraw(sp *spell, over bool) []*item {
	sp.leaving = true
	var out []*item
	lanes := make(map[*lane]struct{})
	for it, next := sp.first, (*item)(nil); it != nil; it = next {
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
	q.ready.take(left)
	for l := range lanes {
		n := l.wait.n
		l.wait.take(left)
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

func (sp *spell) link(it *item) {
	it.older = sp.last
	if sp.last == nil {
		sp.first = it
	} else {
		sp.last.newer = it
	}
	sp.last = it
}

func (sp *spell) unlink(it *item) {
	if it.older == nil {
		sp.first = it.newer
	} else {
		it.older.newer = it.newer
	}
	if it.newer == nil {
		sp.last = it.older
	} else {
		it.newer.older = it.older
	}
	it.newer, it.older = nil, nil
}
