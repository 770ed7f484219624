package sql

import (
	"context"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// watcher looks for messages that were passed before they could be seen, since
// their transactions were still open. What was published after such a one has
// committed must not overtake it.
type watcher interface {
	// passed gives for each job the ids up to j.read that may have been passed
	// so: all that it finds there now, but no more than backRows. It is called
	// when the rows were read, and sees what has been committed by then.
	passed(ctx context.Context, db *database, jobs []*job, known func(*job, int64) bool) ([][]int64, error)
}

// holdBack drops what was read of partitions in which something older has appeared
// meanwhile: it is read again after that.
func (c *consumer) holdBack(ctx context.Context, jobs []*job, b *budget) error {
	if c.watch == nil {
		return nil
	}
	fresh := make(map[int64]bool, len(b.taken))
	for _, d := range b.taken {
		fresh[d.Offset] = true
	}
	known := func(j *job, id int64) bool {
		if fresh[id] || slices.Contains(j.orphans, id) {
			return true
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		_, held := j.s.held[id]
		return held
	}
	found, err := c.watch.passed(ctx, c.db, jobs, known)
	if err != nil {
		return err
	}
	for i, ids := range found {
		if len(ids) == 0 {
			continue
		}
		j := jobs[i]
		b.taken = slices.DeleteFunc(b.taken, func(d *transport.Delivery) bool { return spellOf(d) == j.s && d.Offset > j.cursor })
		b.need = 0
		j.read, j.more = j.cursor, true
		j.seen = min(j.seen, slices.Min(ids))
	}
	return nil
}

// mark is one moment at which cursors went on.
type mark struct {
	at   time.Time
	open []uint64 // transactions that were, where the database tells
	from map[*spell]int64
}

func newMark(jobs []*job) mark {
	m := mark{at: time.Now(), from: make(map[*spell]int64, len(jobs))}
	for _, j := range jobs {
		m.from[j.s] = j.cursor
	}
	return m
}

// lowest is where the cursor of a spell was at the first of the marks that
// knows it, or is.
func lowest(marks []mark, j *job) int64 {
	for _, m := range marks {
		if from, known := m.from[j.s]; known {
			return min(from, j.cursor)
		}
	}
	return j.cursor
}

// advanced tells whether anything was read.
func advanced(jobs []*job) bool {
	return slices.ContainsFunc(jobs, func(j *job) bool { return j.read > j.cursor })
}
