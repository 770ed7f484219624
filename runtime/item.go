package runtime

import (
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

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
	resting    bool // to be paused for a while
	shut       bool // some of it was given back: what comes before that returns would overtake
	openFrom   int  // and then until this Receive
}

// lane is the queue of one ordering unit. At most one of its items is ready,
// runs, is being confirmed or is parked: busy. The others wait in order.
type lane struct {
	busy    *item
	wait    list
	stalled bool // busy has run for so long that what waits counts as held
}

// blocked tells whether what waits in the lane does so for a time that is not
// the handler's usual one.
func (l *lane) blocked() bool { return l.stalled || l.busy != nil && l.busy.state == parked }

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

// item is one delivery while it is held. What every one uses comes first.
type item struct {
	d     *transport.Delivery
	spell *spell
	lane  *lane // nil: a lane of its own
	next  *item // in a list
	size  int64
	state state
	lost  bool // its spell is over: settling it changes nothing

	newer, older *item // in its spell
	follower     *item // a redelivery of this orphan
	leader       *item // the orphan this may be a redelivery of

	attempts  int         // failed so far
	timer     *time.Timer // of parked
	due       time.Time   // not to start before
	first     time.Time
	lastError string
}

// list is a FIFO of items, linked through them.
type list struct {
	head, tail *item
	n          int
	bytes      int64
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
	l.bytes += it.size
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
	l.bytes -= it.size
	return it
}

// remove takes out the items that match.
func (l *list) remove(match func(*item) bool) {
	old := *l
	*l = list{}
	for it := old.pop(); it != nil; it = old.pop() {
		if !match(it) {
			l.push(it)
		}
	}
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
