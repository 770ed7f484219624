package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// chunk is what one fetch has brought of a partition.
type chunk struct {
	records []*kgo.Record
	lump    *lump
}

// lump is the memory of a fetch, as one spell holds it. Deliveries point into
// it, so that it stays as long as one of them is unsettled.
type lump struct {
	bytes  int64 // of the whole fetch
	open   int   // deliveries that point into it and are not settled
	queued bool  // some of it was not handed out yet
}

// pins counts the lumps that are held. While that is too much, deliveries are
// copied out of theirs: then one that is stuck keeps alive some kilobytes.
type pins struct {
	bytes, limit int64
}

// pinFactor is how many times prefetch_bytes may be held in lumps.
const pinFactor = 4

// fetchBytes is what the records of a fetch have in it.
func fetchBytes(f *kgo.Fetch) int64 {
	n := 0
	for i := range f.Topics {
		for j := range f.Topics[i].Partitions {
			for _, r := range f.Topics[i].Partitions[j].Records {
				n += len(r.Key) + len(r.Value)
				for _, h := range r.Headers {
					n += len(h.Key) + len(h.Value)
				}
			}
		}
	}
	return int64(n)
}

// enqueue takes in what a fetch of so many bytes has brought.
func (s *spell) enqueue(records []*kgo.Record, bytes int64) {
	l := &lump{bytes: bytes, queued: true}
	s.queue = append(s.queue, chunk{records, l})
	s.pinned += bytes
	s.pins.bytes += bytes
}

// dequeue gives the next record of the queue, and the lump it is in.
func (s *spell) dequeue() (*kgo.Record, *lump) {
	ch := &s.queue[0]
	r, l := ch.records[0], ch.lump
	ch.records[0] = nil
	ch.records = ch.records[1:]
	if len(ch.records) == 0 {
		l.queued = false
		s.queue[0] = chunk{}
		s.queue = s.queue[1:]
	}
	return r, l
}

// unpin counts a lump no more that nothing holds.
func (s *spell) unpin(l *lump) {
	if l == nil || l.queued || l.open > 0 {
		return
	}
	s.pinned -= l.bytes
	s.pins.bytes -= l.bytes
	l.bytes = 0
}

// unpinAll is for a spell that is over.
func (s *spell) unpinAll() {
	s.pins.bytes -= s.pinned
	s.pinned = 0
}
