package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"strings"

	"github.com/leat-io/leat/internal/sqldb"
)

// mysql is MariaDB, or MySQL from 8.0.13 on. Statements hold their numbers themselves:
// arguments are put in by the driver, so that each takes one round trip.
type mysql struct{}

func (mysql) kind() string               { return "mysql" }
func (mysql) clock() string              { return sqldb.MySQL.Now() }
func (mysql) lateCommits() bool          { return true }
func (mysql) shared() string             { return " LOCK IN SHARE MODE" }
func (mysql) unread() string             { return fmt.Sprintf(unreadMessage, "") }
func (mysql) generation(t string) string { return t + ".gen" }
func (mysql) free() string               { return " FOR UPDATE SKIP LOCKED" }
func (mysql) locked() string             { return " FOR UPDATE" }
func (mysql) in(column string) string    { return column + " IN (" + place + ")" }

func (mysql) numbers(ids []int64) any {
	if len(ids) == 0 {
		return literal("NULL")
	}
	return literal(joined(ids))
}

func (mysql) onConflict(key string, columns ...string) string {
	if len(columns) == 0 {
		columns = strings.Split(key, ", ")[:1]
	}
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + " = VALUES(" + c + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(sets, ", ")
}

const messageMySQL = `m.published_at, m.uuid, m."key", m.headers, m.payload`

func (mysql) forward(ctx context.Context, db *database, jobs []*job, fn func(*row) (bool, error)) error {
	var b strings.Builder
	for slot, j := range jobs {
		if slot > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "(SELECT %d, d.id, %s FROM %s d FORCE INDEX (PRIMARY) LEFT JOIN %s m ON m.id = d.id AND m.topic_id = d.topic_id"+
			" WHERE d.topic_id = %d AND d.group_id = %d AND d.part = %d AND d.id > %d ORDER BY d.id LIMIT %d)",
			slot, messageMySQL, deliveriesMark, messagesMark, j.s.src.id, j.s.src.group, j.s.part, j.cursor, j.limit)
	}
	return messagesOf(ctx, db, b.String(), fn)
}

func (mysql) byID(ctx context.Context, db *database, ids []int64, fn func(*row) (bool, error)) error {
	return messagesOf(ctx, db, "SELECT m.topic_id, m.id, "+messageMySQL+" FROM "+messagesMark+" m WHERE m.id IN ("+joined(ids)+") ORDER BY m.id", fn)
}

// Marks stand for table names in texts of which there are too many to be kept.
const (
	deliveriesMark = "\x00d"
	messagesMark   = "\x00m"
)

func (mysql) named(db *database, query string) string {
	return strings.NewReplacer(deliveriesMark, db.Table("leat_deliveries"), messagesMark, db.Table("leat_messages"), `"key"`, "`key`").Replace(query)
}

func messagesOf(ctx context.Context, db *database, query string, fn func(*row) (bool, error)) error {
	rows, err := db.Reader.QueryContext(ctx, mysql{}.named(db, query))
	if err != nil {
		return err
	}
	defer rows.Close()
	var m row
	var published stdsql.NullInt64
	var id, key, headers, payload stdsql.RawBytes
	dest := []any{&m.slot, &m.id, &published, &id, &key, &headers, &payload}
	for more := true; more && rows.Next(); {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if m.exists = published.Valid; m.exists {
			m.published = published.Int64
			m.own(id, key, headers, payload)
		}
		if more, err = fn(&m); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (mysql) behind(ctx context.Context, db *database, jobs []*job, limit int) ([][]int64, error) {
	parts := make([]string, len(jobs))
	for i, j := range jobs {
		parts[i] = rangeMySQL(i, j, fmt.Sprintf("d.id >= %d AND d.id <= %d", j.back, j.cursor), limit)
	}
	found := make([][]int64, len(jobs))
	return found, idsOfMySQL(ctx, db, db.Reader, parts, found)
}

func (mysql) watcher() watcher { return &mysqlWatch{open: map[*spell][]int64{}} }

// pass leaves a gate alone that somebody holds.
func (mysql) pass(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, gen int64) (bool, error) {
	var open int64
	err := db.first(ctx, tx, "SELECT count(*) FROM (SELECT gen FROM leat_gates WHERE topic_id = ? AND gen = ? FOR UPDATE SKIP LOCKED) AS open", []any{tp.id, gen}, &open)
	if err != nil || open == 0 {
		return false, err
	}
	_, err = db.exec(ctx, tx, "DELETE FROM leat_gates WHERE topic_id = ? AND gen = ?", tp.id, gen)
	return true, err
}

// settle holds the gate while it deletes messages, as publishers do.
func (d mysql) settle(ctx context.Context, c *consumer, src *source, ws []*work) (lost []*spell, err error) {
	gen, alone := c.audience(src)
	var left []int64
	err = c.db.InTx(ctx, func(tx *stdsql.Tx) error {
		lost, left = nil, nil
		acked, err := c.write(ctx, tx, src, ws, &lost)
		if err != nil || len(acked) == 0 {
			return err
		}
		if alone {
			if alone, err = atGate(ctx, c.db, tx, src.topic, gen); err != nil {
				return err
			}
		}
		if !alone {
			left = acked
			return nil
		}
		_, err = c.db.exec(ctx, tx, deleteMessagesMySQL, d.list(acked), src.id)
		return err
	})
	if err == nil && len(left) > 0 {
		c.clean(ctx, src, left)
	}
	return lost, err
}

// clean looks without locks which messages nobody waits for: one statement for
// both would lock what it looks at.
func (d mysql) clean(ctx context.Context, db *database, tp topic, gen int64, ids []int64) (known bool, err error) {
	err = db.InTx(ctx, func(tx *stdsql.Tx) error {
		var err error
		if known, err = atGate(ctx, db, tx, tp, gen); err != nil || !known {
			return err
		}
		var unread []int64
		err = db.each(ctx, tx, "SELECT m.id FROM leat_messages m WHERE "+d.in("m.id")+" AND m.topic_id = ? AND"+d.unread()+" ORDER BY m.id", []any{d.numbers(ids), tp.id}, func(r *stdsql.Rows) error {
			var id int64
			err := r.Scan(&id)
			unread = append(unread, id)
			return err
		})
		if err != nil || len(unread) == 0 {
			return err
		}
		_, err = db.exec(ctx, tx, deleteMessagesMySQL, d.list(unread), tp.id)
		return err
	})
	return known, err
}

func (mysql) deleteSome(table string) string {
	return "DELETE FROM " + table + " WHERE topic_id = ? AND group_id = ? LIMIT ?"
}

// A list as a table to go through, looking up each of its rows: a condition may
// have a small table read as a whole, and wait for rows that others have locked.
const (
	deleteMessagesMySQL = "DELETE m FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) ids STRAIGHT_JOIN leat_messages m ON m.id = ids.id AND m.topic_id = ?"
	deleteRowsMySQL     = "DELETE t FROM JSON_TABLE(?, '$[*]' COLUMNS (part INT PATH '$[0]', id BIGINT PATH '$[1]')) ids STRAIGHT_JOIN %s t" +
		" ON t.topic_id = ? AND t.group_id = ? AND t.part = ids.part AND t.id = ids.id"
)

func (mysql) list(ids []int64) any { return "[" + joined(ids) + "]" }

func (mysql) deleteRows(ctx context.Context, db *database, tx *stdsql.Tx, table string, src *source, rows []partRows) error {
	var pairs []byte
	for _, r := range rows {
		for _, id := range r.ids {
			pairs = append(appendNumbers(append(pairs, ",["...), int64(r.part), id), ']')
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	pairs[0] = '['
	_, err := db.exec(ctx, tx, fmt.Sprintf(deleteRowsMySQL, table), string(append(pairs, ']')), src.id, src.group)
	return err
}
