package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// chunk is what one fetch has brought of a partition.
type chunk struct {
	records []*kgo.Record
	lump    *lump
}

// fetched is the memory of one fetch, of all partitions that it has brought
// something of. It stays as long as one of them holds it.
type fetched struct {
	bytes int64
	lumps int
}

// lump is the part that one spell has in the memory of a fetch. Deliveries point
// into it, so that the spell holds it as long as one of them is unsettled.
type lump struct {
	of     *fetched
	queued int64 // memory of its records while some were not handed out yet, else 0
	open   int   // deliveries that point into it and are not settled
	gone   bool  // the spell holds it no more
}

// pins counts the memory that is held. While that is too much, deliveries are
// copied out of it: then one that is stuck keeps alive some kilobytes.
type pins struct {
	bytes, limit int64
	queued       int64 // memory of what was not handed out yet, with what it takes beside its bytes
}

// recordSize is about what a record takes beside its bytes.
const recordSize = 176

func (p *pins) hold(f *fetched, records []*kgo.Record) *lump {
	bytes := recordBytes(records)
	f.bytes += bytes
	f.lumps++
	p.bytes += bytes
	l := &lump{of: f, queued: bytes + recordSize*int64(len(records))}
	p.queued += l.queued
	return l
}

// unqueue notes that all of a lump was handed out, or never will be.
func (p *pins) unqueue(l *lump) {
	p.queued -= l.queued
	l.queued = 0
}

func (p *pins) letGo(l *lump) {
	l.gone = true
	if l.of.lumps--; l.of.lumps == 0 {
		p.bytes -= l.of.bytes
	}
}

// pinFactor is how many times prefetch_bytes may be held in fetches.
const pinFactor = 4

func recordBytes(records []*kgo.Record) int64 {
	n := 0
	for _, r := range records {
		n += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			n += len(h.Key) + len(h.Value)
		}
	}
	return int64(n)
}

// enqueue takes in what a fetch has brought.
func (s *spell) enqueue(records []*kgo.Record, f *fetched) {
	l := s.pins.hold(f, records)
	s.queue = append(s.queue, chunk{records, l})
	s.lumps = append(s.lumps, l)
}

// dequeue gives the next record of the queue, and the lump it is in.
func (s *spell) dequeue() (*kgo.Record, *lump) {
	ch := &s.queue[0]
	r, l := ch.records[0], ch.lump
	ch.records[0] = nil
	ch.records = ch.records[1:]
	if len(ch.records) == 0 {
		s.pins.unqueue(l)
		s.queue[0] = chunk{}
		s.queue = s.queue[1:]
	}
	return r, l
}

// unpin lets go of a lump that nothing points into any more.
func (s *spell) unpin(l *lump) {
	if l == nil || l.gone || l.queued > 0 || l.open > 0 {
		return
	}
	s.pins.letGo(l)
	s.lumps = slices.DeleteFunc(s.lumps, func(other *lump) bool { return other == l })
}

// unpinAll is for a spell that is over.
func (s *spell) unpinAll() {
	for _, l := range s.lumps {
		s.pins.letGo(l)
	}
	s.lumps = nil
}
