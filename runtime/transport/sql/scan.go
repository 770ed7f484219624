package sql

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

const (
	scanParts = 64   // partitions in one statement
	fairShare = 64   // rows a partition may always fill of one Receive
	apart     = 1024 // ids by which a partition may be ahead of another
	probe     = 16   // rows of a topic of whose messages the sizes are not known
	meanOf    = 8    // messages whose sizes count
)

// job is what one scan does to one spell.
type job struct {
	s            *spell
	cursor, back int64 // as the scan found them
	read         int64 // the highest id that forward read has taken or passed
	seen         int64 // the same of the look back; none: there is nothing left
	orphans      []int64

	// Of the forward read.
	limit, got int  // rows; limit is 0 where there was none
	more       bool // some are left
}

// budget is what one Receive may still return.
type budget struct {
	rows  int
	bytes int64
	need  int64 // size of the first message that did not fit
	taken []*transport.Delivery
	spare []transport.Delivery
}

// together is how many deliveries are allocated at once. One that stays for
// long keeps the others of its block, though not their messages.
const together = 8

func (b *budget) full() bool { return b.need > 0 || b.rows == 0 }

func (b *budget) take(m *row, s *spell) bool {
	if b.full() {
		return false
	}
	if len(b.spare) == 0 {
		b.spare = make([]transport.Delivery, together)
	}
	d := &b.spare[0]
	m.fill(d, s)
	size := d.Size()
	s.src.weigh(size)
	if size > b.bytes {
		b.need = size
		return false
	}
	b.spare = b.spare[1:]
	b.rows--
	b.bytes -= size
	b.taken = append(b.taken, d)
	return true
}

// scan hands out what there is, within limits. Scans are serial: one
// goroutine receives. What an error cuts off is forgotten, and read again.
func (c *consumer) scan(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	jobs := c.begin()
	b := &budget{rows: limit, bytes: maxBytes}
	reading, done := c.patient(ctx)
	defer done()
	err := c.behind(reading, jobs, b)
	if err == nil && !b.full() {
		err = c.forward(reading, jobs, b)
	}
	if err == nil {
		err = c.holdBack(reading, jobs, b)
	}
	if err == nil {
		err = c.attempts(reading, b.taken)
	}
	if err != nil {
		c.abandon()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, refuse(c.db.Explain(err))
	}
	taken := c.finish(jobs, b.taken)
	if len(taken) == 0 && b.need > 0 {
		return nil, transport.NeedBytes(b.need)
	}
	return taken, nil
}

// readGrace is how much longer than its Receive a read may take: one that is cut
// off costs the connection.
const readGrace = 500 * time.Millisecond

// patient is a context for reads that ends a while after ctx.
func (c *consumer) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !c.db.Dialect.Server() {
		return reading, cancel
	}
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(readGrace):
			cancel()
		case <-reading.Done():
		}
	})
	return reading, func() {
		stop()
		cancel()
	}
}

func (c *consumer) begin() []*job {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scanning = true
	n := len(c.spells)
	jobs := make([]*job, 0, n)
	c.turn++
	for i := range n {
		s := c.spells[(i+c.turn)%n] // each goes first in its turn
		if s.readable() {
			jobs = append(jobs, &job{s: s, cursor: s.cursor, back: s.back, read: s.cursor, seen: none})
			s.back = none
		}
	}
	return jobs
}

func (c *consumer) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scanning = false
	for _, s := range c.spells {
		s.scanned()
		s.lookBack(0)
	}
}

// finish moves the cursors, and hands out what is still ours.
func (c *consumer) finish(jobs []*job, taken []*transport.Delivery) []*transport.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scanning = false
	taken = slices.DeleteFunc(taken, func(d *transport.Delivery) bool {
		s := spellOf(d)
		if s.a.Leaving() {
			return true
		}
		s.held[d.Offset] = false
		return false
	})
	orphaned, again := false, false
	for _, j := range jobs {
		j.s.cursor = max(j.s.cursor, j.read)
		if j.limit > 0 {
			j.s.more = j.more
		}
		j.s.lookBack(j.seen)
		again = again || j.seen != none
		for _, id := range j.orphans {
			j.s.held[id] = false
			c.orphans[j.s] = append(c.orphans[j.s], id)
			orphaned = true
		}
	}
	for _, s := range c.spells {
		s.scanned()
	}
	if orphaned {
		poke(c.act)
	}
	if again {
		poke(c.look)
	}
	return taken
}

// forward reads what lies above the cursors. A partition that has older ids
// left to hand out waits, so that they keep their place.
func (c *consumer) forward(ctx context.Context, jobs []*job, b *budget) error {
	var read []*job
	for _, j := range jobs {
		if j.seen == none {
			read = append(read, j)
		}
	}
	if len(read) == 0 {
		return nil
	}
	shareOut(read, b.rows, b.bytes)
	for chunk := range slices.Chunk(read, scanParts) {
		if err := c.above(ctx, chunk, b); err != nil || b.full() {
			return err
		}
	}
	return nil
}

// shareOut gives each partition a limit: the server reads up to it, and sends
// what is beyond the bytes for nothing. Those that are well ahead of one with
// more to read get little until it has caught up: what lies together in the
// file is then read and deleted together, and its pages are written once.
func shareOut(jobs []*job, rows int, bytes int64) {
	share := max((rows+len(jobs)-1)/len(jobs), min(rows, fairShare))
	last, busy := int64(none), int64(0)
	for _, j := range jobs {
		if j.s.more {
			busy++
			last = min(last, j.cursor)
		}
	}
	for _, j := range jobs {
		j.limit = int(min(int64(share), bytes/j.s.src.size(bytes)/max(1, busy)+1))
		if j.cursor > last && j.cursor-last > apart {
			j.limit = max(1, j.limit/8)
		}
	}
}

func (c *consumer) above(ctx context.Context, jobs []*job, b *budget) error {
	err := c.t.d.forward(ctx, c.db, jobs, func(m *row) (bool, error) {
		j := jobs[m.slot]
		if m.id <= j.read {
			return false, fmt.Errorf("message %d was read after message %d", m.id, j.read)
		}
		if !m.exists {
			j.orphans = append(j.orphans, m.id)
		} else if !b.take(m, j.s) {
			return false, nil
		}
		j.read, j.got = m.id, j.got+1
		return !b.full(), nil
	})
	for _, j := range jobs {
		// One that had no turn any more is as it was.
		j.more = j.got == j.limit || (b.full() && (j.s.more || j.got > 0))
	}
	return err
}
