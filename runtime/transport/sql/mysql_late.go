package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mysqlWatch sees rows of open transactions by reading what is not committed,
// and waits for them.
type mysqlWatch struct {
	marks []mark // of the last moments, since a row shows a moment after its id is given out
	open  map[*spell][]int64
}

const dirtyAge = 100 * time.Millisecond

func (w *mysqlWatch) passed(ctx context.Context, db *database, jobs []*job, known func(*job, int64) bool) ([][]int64, error) {
	if !advanced(jobs) && len(w.marks) == 0 && len(w.open) == 0 {
		return nil, nil
	}
	shown := make([][]int64, len(jobs))
	var parts []string
	for i, j := range jobs {
		if low := lowest(w.marks, j); low < j.read {
			parts = append(parts, rangeMySQL(i, j, fmt.Sprintf("d.id > %d AND d.id <= %d", low, j.read), backRows))
		}
		if open := w.open[j.s]; len(open) > 0 {
			parts = append(parts, rangeMySQL(i, j, "d.id IN ("+joined(open)+")", backRows))
		}
	}
	if len(parts) > 0 {
		err := db.Uncommitted(ctx, func(conn *stdsql.Conn) error { return idsOfMySQL(ctx, db, conn, parts, shown) })
		if err != nil {
			return nil, err
		}
	}
	parts = parts[:0]
	for i, j := range jobs {
		slices.Sort(shown[i])
		shown[i] = slices.DeleteFunc(slices.Compact(shown[i]), func(id int64) bool { return known(j, id) })
		if len(shown[i]) > 0 {
			parts = append(parts, rangeMySQL(i, j, "d.id IN ("+joined(shown[i])+")", backRows))
		}
	}
	found := make([][]int64, len(jobs))
	if err := idsOfMySQL(ctx, db, db.Reader, parts, found); err != nil {
		return nil, err
	}
	for i, j := range jobs {
		w.await(j.s, slices.DeleteFunc(shown[i], func(id int64) bool { return slices.Contains(found[i], id) }))
	}
	w.note(jobs)
	return found, nil
}

// await remembers what is to be committed still.
func (w *mysqlWatch) await(s *spell, ids []int64) {
	if len(ids) == 0 || s.a.Revoked() {
		delete(w.open, s)
		return
	}
	w.open[s] = ids
}

func (w *mysqlWatch) note(jobs []*job) {
	for len(w.marks) > 1 && time.Since(w.marks[1].at) >= dirtyAge {
		w.marks = slices.Delete(w.marks, 0, 1)
	}
	if advanced(jobs) {
		w.marks = append(w.marks, newMark(jobs))
	} else if len(w.marks) == 1 && time.Since(w.marks[0].at) >= dirtyAge {
		w.marks = w.marks[:0]
	}
}

func rangeMySQL(slot int, j *job, condition string, limit int) string {
	return fmt.Sprintf("(SELECT %d, d.id FROM %s d FORCE INDEX (PRIMARY) WHERE d.topic_id = %d AND d.group_id = %d AND d.part = %d AND %s ORDER BY d.id LIMIT %d)",
		slot, deliveriesMark, j.s.src.id, j.s.src.group, j.s.part, condition, limit)
}

// queryer is a pool, one of its connections, or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error)
}

// idsOfMySQL adds the rows (slot, id) of all parts.
func idsOfMySQL(ctx context.Context, db *database, by queryer, parts []string, into [][]int64) error {
	if len(parts) == 0 {
		return nil
	}
	rows, err := by.QueryContext(ctx, mysql{}.named(db, strings.Join(parts, " UNION ALL ")))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var slot int
		var id int64
		if err := rows.Scan(&slot, &id); err != nil {
			return err
		}
		into[slot] = append(into[slot], id)
	}
	return rows.Err()
}
