package memory

import (
	"container/heap"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// cursor is one group's place in one partition.
type cursor struct {
	group *group
	part  *partition
	slots []slot // slots[i] is about offset part.base+i; those never handed out may be missing

	start   int64 // where the group began
	floor   int64 // everything below is settled
	next    int64 // nothing fresh below
	back    offsets
	delayed delays
	held    int
	settled int64
	again   []int64 // held, and handed out once more by [Broker.Duplicate]

	window *transport.Window // of log mode
	added  int64             // offsets below are in the window, or settled before it

	failures map[int64]failure // by offset

	spells []*spell // at most one, unless members share
	begun  uint32   // spells so far
}

// slot is what a group knows of one message. Like [record], it has no pointers.
type slot struct {
	state  state
	side   bool   // delayed once: out of the log's window
	times  uint32 // handed out
	holder uint32 // number of the spell that has it
}

type state uint8

const (
	fresh    state = iota
	held           // handed out
	returned       // in cursor.back
	delayed        // in cursor.delayed
	settled
)

type failure struct {
	attempts  int
	first     time.Time
	class     string
	notBefore time.Time
}

func newCursor(g *group, p *partition, start transport.Start, log bool) *cursor {
	c := &cursor{group: g, part: p, start: p.base, failures: map[int64]failure{}}
	if start == transport.StartLatest {
		c.start = p.end()
	}
	c.floor, c.next, c.added = c.start, c.start, c.start
	if log {
		c.window = transport.NewWindow(c.start, 1)
	}
	return c
}

func (c *cursor) slot(offset int64) *slot {
	i := int(offset - c.part.base)
	if n := i + 1 - len(c.slots); n > 0 {
		c.slots = slices.Grow(c.slots, max(n, len(c.part.records)-len(c.slots)))
		c.slots = c.slots[:i+1]
	}
	return &c.slots[i]
}

// ripen moves what is due to what can be handed out, and gives the time of
// the next, zero if none is delayed.
func (c *cursor) ripen(now time.Time) time.Time {
	for len(c.delayed) > 0 {
		if due := c.delayed[0].due; due.After(now) {
			return due
		}
		d := heap.Pop(&c.delayed).(delay)
		c.slot(d.offset).state = returned
		heap.Push(&c.back, d.offset)
	}
	return time.Time{}
}

// peek finds what to hand out next.
func (c *cursor) peek() (offset int64, ok bool) {
	for len(c.again) > 0 {
		if c.slot(c.again[0]).state == held {
			return c.again[0], true
		}
		c.again = c.again[1:]
	}
	if len(c.back) > 0 {
		return c.back[0], true
	}
	for end := c.part.end(); c.next < end; c.next++ {
		if i := int(c.next - c.part.base); i >= len(c.slots) || c.slots[i].state == fresh {
			return c.next, c.window == nil || !c.window.Full()
		}
	}
	return 0, false
}

// take hands out what peek has found.
func (c *cursor) take(offset int64, by *spell) *slot {
	s := c.slot(offset)
	switch s.state {
	case held:
		c.again = c.again[1:]
		return s
	case returned:
		heap.Pop(&c.back)
	case fresh, delayed, settled:
		c.next = offset + 1
	}
	if c.window != nil && !s.side && offset >= c.added {
		c.window.Add(offset)
		c.added = offset + 1
	}
	s.state, s.holder = held, by.number
	s.times++
	c.held++
	by.held++
	return s
}

// drop ends a spell's hold on a message.
func (c *cursor) drop(s *slot, to state) {
	for _, by := range c.spells {
		if by.number == s.holder {
			by.held--
		}
	}
	s.state, s.holder = to, 0
	c.held--
}

func (c *cursor) ack(offset int64, s *slot) {
	c.drop(s, settled)
	c.settled++
	c.done(offset, s)
	for i := int(c.floor - c.part.base); i < len(c.slots) && c.slots[i].state == settled; i++ {
		c.floor++
	}
}

func (c *cursor) release(offset int64, s *slot) {
	c.drop(s, returned)
	heap.Push(&c.back, offset)
}

func (c *cursor) delay(offset int64, s *slot, due time.Time) {
	c.drop(s, delayed)
	heap.Push(&c.delayed, delay{offset, due})
	c.done(offset, s)
	s.side = true
}

// done tells the window of log mode, which may have held up Receive.
func (c *cursor) done(offset int64, s *slot) {
	if c.window != nil && !s.side {
		c.window.Settle(offset)
		c.wake()
	}
}

// giveBack ends a spell: what it held is there for the next owner, in order.
// In log mode that begins at the mark; unless the end was clean, what was
// acked ahead of the mark comes again.
func (c *cursor) giveBack(by *spell, clean bool) {
	for offset := c.floor; offset < c.part.base+int64(len(c.slots)); offset++ {
		s := c.slot(offset)
		if s.state == held && s.holder == by.number {
			c.release(offset, s)
		}
	}
	c.again = nil
	if c.window == nil {
		return
	}
	mark := max(c.window.Mark(), c.floor)
	back := c.back
	c.back = nil
	for _, offset := range back {
		if s := c.slot(offset); offset >= mark && !s.side {
			s.state = fresh
		} else {
			heap.Push(&c.back, offset)
		}
	}
	for offset := mark; !clean && offset < c.part.base+int64(len(c.slots)); offset++ {
		if s := c.slot(offset); s.state == settled && !s.side {
			s.state = fresh
			c.settled--
		}
	}
	c.next, c.added = mark, mark
}

// begin starts a spell.
func (c *cursor) begin(s *spell, span int) {
	c.begun++
	s.number = c.begun
	c.spells = append(c.spells, s)
	if c.window != nil {
		c.window = transport.NewWindow(c.next, span)
	}
}

// offsets is a heap, lowest first.
type offsets []int64

func (h offsets) Len() int           { return len(h) }
func (h offsets) Less(i, j int) bool { return h[i] < h[j] }
func (h offsets) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *offsets) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *offsets) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

type delay struct {
	offset int64
	due    time.Time
}

// delays is a heap, first due first.
type delays []delay

func (h delays) Len() int { return len(h) }
func (h delays) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].offset < h[j].offset
	}
	return h[i].due.Before(h[j].due)
}
func (h delays) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *delays) Push(x any)   { *h = append(*h, x.(delay)) }
func (h *delays) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
