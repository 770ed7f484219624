package memory

import "github.com/leat-io/leat/runtime/transport"

// batch is what one Receive gathers.
type batch struct {
	limit int
	bytes int64 // left
	need  int64 // size of the message that did not fit
	ds    []*transport.Delivery
	free  []handed
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
		m := &cur.part.msgs[offset-cur.part.base]
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

func (b *batch) add(s *spell, offset int64, m *stored) {
	cur := s.cursor
	if len(b.free) == 0 {
		left := int64(b.limit - len(b.ds))
		there := cur.part.end() - cur.next + int64(len(cur.back)+len(cur.again))
		n := max(1, min(left, there, slab))
		if m.size > small {
			n = 1
		}
		b.free = make([]handed, n)
		if b.ds == nil {
			b.ds = make([]*transport.Delivery, 0, max(1, min(left, there)))
		}
	}
	d := &b.free[0]
	b.free = b.free[1:]
	again := cur.slot(offset).times > 0
	sl := cur.take(offset, s)
	d.ref = ref{spell: s, offset: offset, times: sl.times}
	d.Delivery = transport.Delivery{
		ID: m.id, Payload: m.payload, Headers: m.headers, Key: m.key, Enqueued: m.enqueued,
		Topic: s.a.Topic, Partition: s.a.Partition, Offset: offset,
		Redelivered: again, Assignment: s.a, Tag: &d.ref,
	}
	if s.consumer.session > 0 {
		s.tag++
		d.Session, d.Offset = s.consumer.session, s.tag
	}
	if f := sl.failure; f != nil {
		d.Attempts, d.FirstFailure, d.LastError, d.NotBefore = f.attempts, f.first, f.class, f.notBefore
	}
	b.ds = append(b.ds, &d.Delivery)
	cur.group.broker.observe(Delivered, cur, offset, d.ID, 0)
}
