package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/leat-io/leat/internal/sqldb"
)

// sqlite has one writer at a time.
type sqlite struct{}

func (sqlite) kind() string             { return "sqlite" }
func (sqlite) clock() string            { return sqldb.SQLite.Now() }
func (sqlite) lateCommits() bool        { return false }
func (sqlite) shared() string           { return "" }
func (sqlite) unread() string           { return unreadInFile }
func (sqlite) generation(string) string { return "0" } // groups cannot come meanwhile
func (sqlite) free() string             { return "" }
func (sqlite) locked() string           { return "" }
func (sqlite) in(column string) string  { return column + " IN (SELECT value FROM json_each(?))" }
func (sqlite) numbers(ids []int64) any  { return "[" + joined(ids) + "]" }

func (sqlite) onConflict(key string, columns ...string) string { return onConflict(key, columns) }

// onConflict is what SQLite has from PostgreSQL.
func onConflict(key string, columns []string) string {
	if len(columns) == 0 {
		return " ON CONFLICT DO NOTHING"
	}
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + " = excluded." + c
	}
	return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(sets, ", ")
}

// head is what a row has beside headers and payload, in one column: each
// column of its own would cost two allocations. It survives whatever types a
// row inserted by hand has.
const head = "iif(m.id IS NULL, '', format('%d %d ', m.published_at, octet_length(m.uuid)) || coalesce(m.uuid, '') || coalesce(m.key, ''))" +
	", CAST(m.headers AS TEXT), CAST(m.payload AS BLOB)"

func (sqlite) forward(ctx context.Context, db *database, jobs []*job, fn func(*row) (bool, error)) error {
	query := union(len(jobs), "SELECT format('%d %d ', ?, d.id) || "+head+
		" FROM leat_deliveries d LEFT JOIN leat_messages m ON m.id = d.id AND m.topic_id = d.topic_id"+
		" WHERE d.topic_id = ? AND d.group_id = ? AND d.part = ? AND d.id > ? ORDER BY d.id LIMIT ?")
	args := make([]any, 0, 6*len(jobs))
	for slot, j := range jobs {
		args = append(args, slot, j.s.src.id, j.s.src.group, j.s.part, j.cursor, j.limit)
	}
	return headed(ctx, db, query, args, fn)
}

func (d sqlite) byID(ctx context.Context, db *database, ids []int64, fn func(*row) (bool, error)) error {
	query := "SELECT format('%d %d ', m.topic_id, m.id) || " + head + " FROM leat_messages m WHERE " + d.in("m.id") + " ORDER BY m.id"
	return headed(ctx, db, query, []any{d.numbers(ids)}, fn)
}

func (sqlite) behind(ctx context.Context, db *database, jobs []*job, limit int) ([][]int64, error) {
	query := union(len(jobs), "SELECT ?, d.id FROM leat_deliveries d"+
		" WHERE d.topic_id = ? AND d.group_id = ? AND d.part = ? AND d.id >= ? AND d.id <= ? ORDER BY d.id LIMIT ?")
	return slotted(ctx, db, query, jobs, limit)
}

func union(n int, query string) string {
	one := "SELECT * FROM (" + query + ")"
	return strings.Repeat(one+" UNION ALL ", n-1) + one
}

// slotted gives the rows (slot, id) of a query that has a part for each job.
func slotted(ctx context.Context, db *database, query string, jobs []*job, limit int) ([][]int64, error) {
	args := make([]any, 0, 7*len(jobs))
	for slot, j := range jobs {
		args = append(args, slot, j.s.src.id, j.s.src.group, j.s.part, j.back, j.cursor, limit)
	}
	ids := make([][]int64, len(jobs))
	err := db.look(ctx, query, args, func(r *stdsql.Rows) (bool, error) {
		var slot int
		var id int64
		if err := r.Scan(&slot, &id); err != nil {
			return false, err
		}
		ids[slot] = append(ids[slot], id)
		return true, nil
	})
	return ids, err
}

// headed gives the rows of a query whose first column is a head.
func headed(ctx context.Context, db *database, query string, args []any, fn func(*row) (bool, error)) error {
	var m row
	var first, headers text
	var payload blob
	columns := []any{&first, &headers, &payload}
	return db.look(ctx, query, args, func(r *stdsql.Rows) (bool, error) {
		if err := r.Scan(columns...); err != nil {
			return false, err
		}
		m.head(string(first))
		m.headers, m.payload = string(headers), payload
		return fn(&m)
	})
}

// head reads "slot id ", and if there is a message "published length " and as
// many bytes of the id and the rest of the key.
func (m *row) head(rest string) {
	number := func() int64 {
		digits, after, _ := strings.Cut(rest, " ")
		rest = after
		n, _ := strconv.ParseInt(digits, 10, 64) // the query made it
		return n
	}
	m.slot, m.id = int(number()), number()
	if m.exists = rest != ""; m.exists {
		m.published = number()
		n := number()
		m.uuid, m.key = rest[:n], rest[n:]
	}
}

// text and blob take a column as the driver made it, without a copy: the
// driver makes each anew.
type (
	text string
	blob []byte
)

// Scan is for database/sql.
func (t *text) Scan(v any) error {
	s, ok := v.(string)
	if !ok && v != nil {
		return fmt.Errorf("column is %T, not text", v)
	}
	*t = text(s)
	return nil
}

// Scan is for database/sql. An empty one is not nil.
func (b *blob) Scan(v any) error {
	*b = nil
	if v == nil {
		return nil
	}
	s, ok := v.([]byte)
	if !ok {
		return fmt.Errorf("column is %T, not a blob", v)
	}
	if *b = s; s == nil {
		*b = blob{}
	}
	return nil
}

func (d sqlite) settle(ctx context.Context, c *consumer, src *source, ws []*work) (lost []*spell, err error) {
	unbroken := context.WithoutCancel(ctx)
	err = c.db.InTx(ctx, func(tx *stdsql.Tx) error {
		lost = nil
		acked, err := c.write(unbroken, tx, src, ws, &lost)
		if err != nil || len(acked) == 0 {
			return err
		}
		var groups int
		if err := c.db.first(unbroken, tx, "SELECT count(*) FROM leat_groups WHERE topic_id = ?", []any{src.id}, &groups); err != nil {
			return err
		}
		condition := " true"
		if groups > 1 {
			condition = d.unread()
		}
		return d.delete(unbroken, c.db, tx, src.id, acked, condition)
	})
	return lost, err
}

func (d sqlite) clean(ctx context.Context, db *database, tp topic, _ int64, ids []int64) (bool, error) {
	return true, db.InTx(ctx, func(tx *stdsql.Tx) error { return d.delete(context.WithoutCancel(ctx), db, tx, tp.id, ids, d.unread()) })
}

func (d sqlite) delete(ctx context.Context, db *database, tx *stdsql.Tx, topicID int64, ids []int64, condition string) error {
	_, err := db.exec(ctx, tx, "DELETE FROM leat_messages AS m WHERE "+d.in("m.id")+" AND m.topic_id = ? AND"+condition, d.numbers(ids), topicID)
	return err
}

func (sqlite) pass(context.Context, *database, *stdsql.Tx, topic, int64) (bool, error) {
	return true, nil
}

func (sqlite) deleteSome(table string) string {
	return "DELETE FROM " + table + " WHERE (topic_id, group_id, part, id) IN (SELECT topic_id, group_id, part, id FROM " + table + " WHERE topic_id = ? AND group_id = ? LIMIT ?)"
}

func (d sqlite) deleteRows(ctx context.Context, db *database, tx *stdsql.Tx, table string, src *source, rows []partRows) error {
	return deleteByPart(ctx, d, db, tx, table, src, rows)
}

// deleteByPart takes a statement for each partition.
func deleteByPart(ctx context.Context, d dialect, db *database, tx *stdsql.Tx, table string, src *source, rows []partRows) error {
	for _, r := range rows {
		_, err := db.exec(ctx, tx, "DELETE FROM "+table+" WHERE "+d.in("id")+" AND topic_id = ? AND group_id = ? AND part = ?", d.numbers(r.ids), src.id, src.group, r.part)
		if err != nil {
			return err
		}
	}
	return nil
}

// watcher is none: rows become visible in the order of their ids.
func (sqlite) watcher() watcher { return nil }
