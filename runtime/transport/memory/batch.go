package memory

import (
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// batch is what one Receive gathers.
type batch struct {
	limit int
	bytes int64 // left
	need  int64 // size of the message that did not fit
	ds    []*transport.Delivery
	free  []handed
	heads transport.Headers // likewise
}

// fill takes from one partition until the batch is full, which it reports, or
// the partition has no more.
func (b *batch) fill(s *spell) bool {
	cur := s.cursor
	for {
		offset, ok := cur.peek()
		if !ok {
			return false
		}
		m := cur.part.at(offset)
		if m.size > b.bytes {
			b.need = m.size
			return true
		}
		b.bytes -= m.size
		b.add(s, offset, m)
		if len(b.ds) == b.limit {
			return true
		}
	}
}

func (b *batch) add(s *spell, offset int64, m *record) {
	cur := s.cursor
	if b.ds == nil {
		b.ds = make([]*transport.Delivery, 0, b.room(cur))
	}
	d := b.next(cur, m)
	again := cur.slot(offset).times > 0
	sl := cur.take(offset, s)
	d.ref = ref{spell: s, offset: offset, times: sl.times}
	b.copy(&d.Delivery, &cur.part.store, m)
	d.Topic, d.Partition, d.Offset = s.a.Topic, s.a.Partition, offset
	d.Redelivered, d.Assignment, d.Tag = again, s.a, &d.ref
	if s.consumer.session > 0 {
		s.tag++
		d.Session, d.Offset = s.consumer.session, s.tag
	}
	if f, failed := cur.failures[offset]; failed {
		d.Attempts, d.FirstFailure, d.LastError, d.NotBefore = f.attempts, f.first, f.class, f.notBefore
	}
	b.ds = append(b.ds, &d.Delivery)
	cur.group.broker.observe(Delivered, cur, offset, d.ID, 0)
}

// copy gives a delivery the message of m.
func (b *batch) copy(d *transport.Delivery, from *store, m *record) {
	id, text := from.id(m)
	d.ID, d.Payload, d.Enqueued = id, from.payload(m), time.Unix(0, m.enqueued)
	if m.headers == 0 {
		return
	}
	d.Headers = b.take(m)
	headers(d.Headers, text)
	d.Key = d.Headers.Get(transport.KeyHeader)
}

// room is how many more could come.
func (b *batch) room(cur *cursor) int {
	there := cur.part.end() - cur.next + int64(len(cur.back)+len(cur.again))
	return max(1, min(b.limit-len(b.ds), int(there)))
}

// next is the delivery for a message. Those of small ones share an allocation:
// one that stays on keeps the others alive.
func (b *batch) next(cur *cursor, m *record) *handed {
	if m.size > small {
		return new(handed)
	}
	if len(b.free) == 0 {
		b.free = make([]handed, min(b.room(cur), slab))
	}
	d := &b.free[0]
	b.free = b.free[1:]
	return d
}

// take is room for a message's headers, shared like its delivery.
func (b *batch) take(m *record) transport.Headers {
	if m.size > small {
		return make(transport.Headers, m.headers)
	}
	if len(b.heads) < m.headers {
		b.heads = make(transport.Headers, m.headers*(len(b.free)+1))
	}
	h := b.heads[:m.headers:m.headers]
	b.heads = b.heads[m.headers:]
	return h
}
