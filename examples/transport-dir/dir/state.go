package dir

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// state is what a group has done with a partition. It is as large as what is
// not done yet, however much that is ahead of it.
type state struct {
	Done    spans              `json:"done"`
	Waiting map[int64]*waiting `json:"waiting,omitempty"` // by offset; what has failed before
}

// waiting is what a failed message takes along.
type waiting struct {
	Attempts int       `json:"attempts"`
	First    time.Time `json:"first_failure,omitzero"`
	Error    string    `json:"error,omitempty"`
	Due      time.Time `json:"due"`
	// Delayed: others may overtake it. Else it is handed out before it is
	// due, so that its order waits with it.
	Delayed bool `json:"delayed,omitempty"`
}

func newState() *state { return &state{Waiting: map[int64]*waiting{}} }

func statePath(folder string, partition int) string {
	return filepath.Join(folder, strconv.Itoa(partition)+".json")
}

func loadState(path string) (*state, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	st := newState()
	if err := json.Unmarshal(text, st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return st, nil
}

func (st *state) save(path string) error {
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return replace(path, text)
}

// ack notes that an offset is done with.
func (st *state) ack(offset int64) {
	st.Done.add(offset, offset+1)
	delete(st.Waiting, offset)
}

// fail notes a failed attempt.
func (st *state) fail(s transport.Settlement, now time.Time) {
	st.Waiting[s.Delivery.Offset] = &waiting{
		Attempts: s.Attempts, First: s.FirstFailure, Error: s.LastError,
		Due: now.Add(s.After), Delayed: s.Verdict == transport.Delay,
	}
}

// early tells whether an offset is not to be handed out yet.
func (st *state) early(offset int64, now time.Time) bool {
	w := st.Waiting[offset]
	return w != nil && w.Delayed && now.Before(w.Due)
}

// delayed counts them.
func (st *state) delayed(now time.Time) (n int64) {
	for offset := range st.Waiting {
		if st.early(offset, now) {
			n++
		}
	}
	return n
}

// tell has a delivery say what is known of its failures.
func (st *state) tell(d *transport.Delivery) {
	if w := st.Waiting[d.Offset]; w != nil {
		d.Attempts, d.FirstFailure, d.LastError, d.NotBefore = w.Attempts, w.First, w.Error, w.Due
	}
}

// spans are sets of offsets: ranges [from, to) in order, which neither meet
// nor touch.
type spans [][2]int64

// at is the first range that ends at an offset or above.
func (s spans) at(offset int64) int {
	i, _ := slices.BinarySearchFunc(s, offset, func(r [2]int64, o int64) int { return cmp.Compare(r[1], o) })
	return i
}

// next is the lowest offset from one on that is not in the set.
func (s spans) next(offset int64) int64 {
	if i := s.at(offset + 1); i < len(s) && s[i][0] <= offset {
		return s[i][1]
	}
	return offset
}

func (s *spans) add(from, to int64) {
	if from >= to {
		return
	}
	first := s.at(from)
	last := first
	for ; last < len(*s) && (*s)[last][0] <= to; last++ {
		from, to = min(from, (*s)[last][0]), max(to, (*s)[last][1])
	}
	*s = slices.Replace(*s, first, last, [2]int64{from, to})
}

func (s spans) count() (n int64) {
	for _, r := range s {
		n += r[1] - r[0]
	}
	return n
}
