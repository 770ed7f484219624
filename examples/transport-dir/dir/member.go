package dir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// seat is a member's place in the group of one topic. There are as many as
// partitions; who finds none waits for one.
type seat struct {
	topic  *topic
	folder string // of the group
	number int
	lock   *os.File // nil: none yet
}

// share says which partitions are for this member: every n-th, of n members.
func (s *seat) share() (mine []bool, err error) {
	for n := 0; n < s.topic.partitions && s.lock == nil; n++ {
		if s.lock, err = tryLock(s.path(n), exclusive); err != nil {
			return nil, err
		}
		s.number = n
	}
	mine = make([]bool, s.topic.partitions)
	if s.lock == nil {
		return mine, nil
	}
	members, place := 0, 0
	for n := range s.topic.partitions {
		if n == s.number {
			place = members
		} else if free, err := tryLock(s.path(n), shared); err != nil { // shared: who only looks is no member
			return nil, err
		} else if free != nil {
			if err := free.Close(); err != nil {
				return nil, err
			}
			continue
		}
		members++
	}
	for p := range mine {
		mine[p] = p%members == place
	}
	return mine, nil
}

func (s *seat) path(n int) string {
	return filepath.Join(s.folder, "seat"+strconv.Itoa(n)+".lock")
}

// spell is one time of owning a partition.
type spell struct {
	*state
	seat      *seat
	partition int
	lock      *os.File
	a         *transport.Assignment

	// Guarded by the consumer's mutex, as is the state.
	held    map[int64]*transport.Delivery
	changed bool // and not saved
	paused  bool
	leaving time.Time // since when; zero: it stays
	over    bool
}

// own takes a partition and reads its state; nil where another owns it still.
func (s *seat) own(c *consumer, partition int) (*spell, error) {
	held, err := tryLock(filepath.Join(s.folder, strconv.Itoa(partition)+".lock"), exclusive)
	if held == nil {
		return nil, err
	}
	st, err := loadState(statePath(s.folder, partition))
	if err != nil {
		_ = held.Close() // of no use
		return nil, fmt.Errorf("position of group: %w", err)
	}
	return &spell{
		state: st, seat: s, partition: partition, lock: held, held: map[int64]*transport.Delivery{},
		a: transport.NewAssignment(c.cfg.Base, s.topic.name, int32(partition)), //nolint:gosec // at most 64
	}, nil
}

// save writes what has changed.
func (sp *spell) save() error {
	if !sp.changed {
		return nil
	}
	if err := sp.state.save(statePath(sp.seat.folder, sp.partition)); err != nil {
		return fmt.Errorf("position of group: %w", err)
	}
	sp.changed = false
	return nil
}

// hand gives the delivery at an offset; nil where its file was deleted.
func (sp *spell) hand(offset int64) (*transport.Delivery, error) {
	d, err := sp.seat.topic.read(sp.partition, offset)
	if os.IsNotExist(err) {
		sp.ack(offset)
		sp.changed = true
		return nil, nil //nolint:nilnil // as said
	}
	if err != nil {
		return nil, err
	}
	d.Assignment, d.Tag = sp.a, sp
	sp.tell(d)
	return d, nil
}
