package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leat-io/leat/runtime/transport"
)

// spell is one time of owning one partition. It goes through three states:
// live; leaving, when nothing more is handed out and what runs may be settled;
// frozen, when settlements change nothing, and what was settled before is
// committed a last time. The consumer's mutex guards all that changes.
type spell struct {
	a     *transport.Assignment
	topic string
	id    kadm.TopicID
	part  int32

	queue []chunk   // fetched and not handed out, in order
	back  []*handed // released, to be handed out again, in order
	first *handed   // the next one, if there was no room for its bytes
	next  int64     // the lowest offset that may still come out of the queue

	pins  *pins   // the consumer's
	lumps []*lump // that are held, in the order they came

	win    *transport.Window
	top    int64   // one above the highest offset that is settled
	before *ahead  // what an earlier owner has left; nil when passed
	epochs []epoch // leader epochs, ascending
	open   int     // handed out and not settled

	changes uint64 // settlements so far
	told    uint64 // of those, the ones a commit has covered
	passed  uint64 // of those, the last that no Settle will have committed

	stuck string // why it cannot be read on; empty if it can

	paused, leaving, frozen bool
	stopped                 bool          // the client fetches nothing of it
	idle                    chan struct{} // closed when it is leaving and nothing is open
}

// epoch is a leader epoch, and the offset from which on records have it.
type epoch struct {
	epoch int32
	from  int64
}

// ready tells whether it may hand out what was not handed out before.
func (s *spell) ready() bool {
	return !s.paused && !s.leaving && !s.win.Full()
}

// give finds what to hand out next; nil if there is nothing.
func (s *spell) give(m *maker) *handed {
	if s.paused || s.leaving {
		return nil
	}
	if len(s.back) > 0 {
		return s.back[0]
	}
	for s.first == nil && len(s.queue) > 0 && !s.win.Full() {
		r, l := s.dequeue()
		if r.Offset < s.next {
			s.unpin(l)
			continue
		}
		s.next = r.Offset + 1
		if n := len(s.epochs); n == 0 || s.epochs[n-1].epoch < r.LeaderEpoch {
			s.epochs = append(s.epochs, epoch{r.LeaderEpoch, r.Offset})
		}
		if r.Attrs.IsControl() || s.before.has(r.Offset) {
			s.win.Add(r.Offset)
			s.settle(r.Offset)
			s.passed = s.changes
			s.unpin(l)
			continue
		}
		s.first = m.make(r, s, l)
		s.unpin(l)
	}
	if s.before != nil && s.next >= s.before.top {
		s.before = nil
	}
	return s.first
}

// took notes that h, which give has found, is handed out.
func (s *spell) took(h *handed) {
	if h == s.first {
		s.first = nil
		s.win.Add(h.Offset)
	} else {
		s.back = s.back[1:]
	}
	s.open++
}

// settle notes that an offset is done with.
func (s *spell) settle(offset int64) {
	s.win.Settle(offset)
	s.top = max(s.top, offset+1)
	s.changes++
}

// giveBack puts what was released where it can be handed out again.
func (s *spell) giveBack(h *handed) {
	if s.leaving {
		return // it comes to the next owner
	}
	again := &handed{Delivery: h.Delivery, spell: s, size: h.size, lump: h.lump}
	if h.lump != nil {
		h.lump.open++
	}
	again.Tag, again.Redelivered = again, true
	at, _ := slices.BinarySearchFunc(s.back, h.Offset, func(b *handed, offset int64) int { return int(b.Offset - offset) })
	s.back = slices.Insert(s.back, at, again)
}

// closed ends one hand-over, and tells who waits for all of them.
func (s *spell) closed(h *handed) {
	h.done = true
	s.open--
	if h.lump != nil {
		h.lump.open--
		s.unpin(h.lump)
	}
	s.checkIdle()
}

func (s *spell) checkIdle() {
	if s.leaving && s.open == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// leave begins the end: nothing more is handed out.
func (s *spell) leave() {
	s.leaving = true
	for _, ch := range s.queue {
		s.pins.unqueue(ch.lump)
	}
	s.queue, s.back, s.first = nil, nil, nil
	s.checkIdle()
}

// epochAt is the leader epoch of the record before an offset; -1 if we have
// not seen it.
func (s *spell) epochAt(offset int64) int32 {
	for _, e := range slices.Backward(s.epochs) {
		if e.from < offset {
			return e.epoch
		}
	}
	return -1
}

// position is the lowest offset that is not done, and what is done above it;
// nil if nothing is. Of what an earlier owner has left, the part counts that
// has not come again yet.
func (s *spell) position() (int64, *ahead) {
	a := &ahead{topic: s.id, offset: s.win.Mark(), top: s.top}
	a.epoch = s.epochAt(a.top)
	if s.before != nil && s.before.top > a.top {
		a.top, a.epoch = s.before.top, s.before.epoch
	}
	for offset := range s.win.Pending() {
		if offset >= a.top {
			break
		}
		a.open = append(a.open, offset)
	}
	if s.before != nil {
		seen := s.next
		if s.first != nil {
			seen = s.first.Offset
		}
		i, _ := slices.BinarySearch(s.before.open, seen)
		a.open = append(a.open, s.before.open[i:]...)
	}
	switch {
	case len(a.open) > 0:
		a.offset = a.open[0]
		return a.offset, a
	case s.win.Open() > 0: // above all that is done
		return a.offset, nil
	default:
		return max(a.offset, a.top), nil
	}
}
