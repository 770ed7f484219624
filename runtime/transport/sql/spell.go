package sql

import (
	"math"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// source is one topic as one group reads it.
type source struct {
	topic
	group int64

	// Guarded by mu.
	due    time.Time // when the next delayed row of ours is due; zero: none is known
	gen    int64     // of the topic, when it was last looked at
	groups int       // of the topic, likewise

	unclean  []int64 // messages to delete if nobody waits for them
	cleaning bool    // somebody is at it

	mean int64 // size of the last messages, about; 0: none was read. For Receive alone

	// What the keeper alone uses.
	sightOf  map[string]*sighting // of other members
	joined   bool
	unfilled bool // what is older than the group waits for publishers
	wanting  bool // has less than its share
}

// dueBy notes that a delayed row will be due.
func (src *source) dueBy(t time.Time) {
	if src.due.IsZero() || t.Before(src.due) {
		src.due = t
	}
}

// weigh notes the size of a message.
func (src *source) weigh(size int64) {
	if src.mean == 0 {
		src.mean = size
	}
	src.mean += (size - src.mean) / meanOf
}

// size is what a message is likely to have, where bytes may still be returned.
func (src *source) size(bytes int64) int64 {
	if src.mean == 0 {
		return bytes/probe + 1
	}
	return src.mean
}

// sighting is what was last seen of another member's lease.
type sighting struct {
	until int64
	left  time.Duration // of it, by the database's clock when it was first seen so
	since time.Time     // and when that was
}

// spell is one spell of owning one partition of a source. The consumer's mu
// guards what changes.
//
// What makes reading by a cursor safe: an id is held from the moment it is
// handed out until its delete has committed and no scan is under way that
// began before that. So a scan never hands out what another one has, nor what
// is gone by the time it returns; and what lies at or below the cursor without
// being held is looked for again (back).
type spell struct {
	src   *source
	part  int32
	epoch int64
	a     *transport.Assignment

	cursor    int64          // the highest id read
	more      bool           // the last read has left some
	back      int64          // look again from here up to cursor; none: nothing to look for
	floor     int64          // the cursor of about a second ago
	held      map[int64]bool // true: settled while a scan was under way
	lingering []int64        // those
	paused    bool
	failed    bool      // there may be rows in leat_attempts
	renewed   time.Time // before the lease was last renewed
	leaveBy   time.Time // zero unless it is to be given up
}

const none = math.MaxInt64

// lookBack has everything from id on looked for again.
func (s *spell) lookBack(id int64) { s.back = min(s.back, id) }

// drop ends the holding of ids that are settled.
func (s *spell) drop(ids []int64, scanning bool) {
	for _, id := range ids {
		switch {
		case !s.holds(id):
		case scanning:
			s.held[id] = true
			s.lingering = append(s.lingering, id)
		default:
			delete(s.held, id)
		}
	}
}

// holds tells whether id is handed out and not settled.
func (s *spell) holds(id int64) bool {
	settled, held := s.held[id]
	return held && !settled
}

// scanned lets go of what was settled during a scan that has returned.
func (s *spell) scanned() {
	for _, id := range s.lingering {
		delete(s.held, id)
	}
	s.lingering = s.lingering[:0]
}

// outstanding counts what is handed out and not settled.
func (s *spell) outstanding() int { return len(s.held) - len(s.lingering) }

// readable tells whether more may be handed out.
func (s *spell) readable() bool { return !s.paused && !s.a.Leaving() }
