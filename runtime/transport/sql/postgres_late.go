package sql

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresWatch knows from the server which transactions are open. One that is
// open when a reader goes on may have rows above where it was before, and is
// looked for there when it has ended.
type postgresWatch struct {
	marks []mark
	old   map[uint64]mark // open for longer than marks are kept, by their ids
}

const (
	markAge = 500 * time.Millisecond
	// markLeast are kept whatever has ended: an id is given out a moment before
	// its transaction shows.
	markLeast = 2
)

func (w *postgresWatch) passed(ctx context.Context, db *database, jobs []*job, known func(*job, int64) bool) ([][]int64, error) {
	if !advanced(jobs) && len(w.marks) == 0 && len(w.old) == 0 {
		return nil, nil
	}
	low := make([]int64, len(jobs))
	for i, j := range jobs {
		low[i] = lowest(w.marks, j)
	}
	var snapshot string
	found := make([][]int64, len(jobs))
	b := &pgx.Batch{}
	b.Queue("SELECT pg_current_snapshot()::text").QueryRow(func(r pgx.Row) error { return r.Scan(&snapshot) })
	w.look(b, db, jobs, low, found)
	if err := db.Pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	now, err := parseSnapshot(snapshot)
	if err != nil {
		return nil, err
	}
	if w.ended(now, jobs, low) {
		b := &pgx.Batch{}
		w.look(b, db, jobs, low, found)
		if err := db.Pool.SendBatch(ctx, b).Close(); err != nil {
			return nil, err
		}
	}
	w.note(now, jobs)
	for i, j := range jobs {
		found[i] = slices.DeleteFunc(found[i], func(id int64) bool { return known(j, id) })
	}
	return found, nil
}

// look finds what is between low and what was read.
func (*postgresWatch) look(b *pgx.Batch, db *database, jobs []*job, low []int64, found [][]int64) {
	r := rangesPostgres(jobs)
	for i, j := range jobs {
		r.low[i], r.high[i] = low[i]+1, j.read
	}
	b.Queue(db.SQL(behindPostgres), backRows, r.slots, r.topics, r.groups, r.parts, r.low, r.high).Query(func(rows pgx.Rows) error { return slotsOf(rows, found) })
}

// ended lowers low to where transactions may have rows that were open for long,
// and tells whether there were any.
func (w *postgresWatch) ended(now snapshot, jobs []*job, low []int64) (some bool) {
	for id, m := range w.old {
		if now.open(id) {
			continue
		}
		delete(w.old, id)
		some = true
		for i, j := range jobs {
			low[i] = min(low[i], lowest([]mark{m}, j))
		}
	}
	return some
}

// note drops marks whose transactions have ended, and adds one for now.
func (w *postgresWatch) note(now snapshot, jobs []*job) {
	for len(w.marks) > markLeast {
		m := w.marks[0]
		if slices.ContainsFunc(m.open, now.open) {
			if time.Since(m.at) < markAge {
				break
			}
			for _, id := range m.open {
				if _, there := w.old[id]; !there && now.open(id) {
					w.old[id] = m
				}
			}
		}
		w.marks = slices.Delete(w.marks, 0, 1)
	}
	if advanced(jobs) {
		m := newMark(jobs)
		m.open = now.running
		w.marks = append(w.marks, m)
		return
	}
	if len(w.marks) <= markLeast && !slices.ContainsFunc(w.marks, func(m mark) bool { return slices.ContainsFunc(m.open, now.open) }) {
		w.marks = w.marks[:0] // nothing goes on
	}
}

// snapshot says which transactions are open at a moment.
type snapshot struct {
	next    uint64 // from here on none has begun
	running []uint64
}

func (s snapshot) open(id uint64) bool { return id >= s.next || slices.Contains(s.running, id) }

func parseSnapshot(text string) (s snapshot, err error) {
	fields := strings.SplitN(text, ":", 3)
	if len(fields) < 3 {
		return s, strconv.ErrSyntax
	}
	if s.next, err = strconv.ParseUint(fields[1], 10, 64); err != nil || fields[2] == "" {
		return s, err
	}
	for id := range strings.SplitSeq(fields[2], ",") {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return s, err
		}
		s.running = append(s.running, n)
	}
	return s, nil
}
