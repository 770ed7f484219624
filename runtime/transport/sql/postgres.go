package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/leat-io/leat/internal/sqldb"
)

// postgres reads and writes through pgx itself: a batch of statements is one
// transaction and one round trip.
type postgres struct{}

func (postgres) kind() string               { return "postgres" }
func (postgres) clock() string              { return sqldb.Postgres.Now() }
func (postgres) lateCommits() bool          { return true }
func (postgres) shared() string             { return " FOR SHARE" }
func (postgres) unread() string             { return fmt.Sprintf(unreadMessage, " OFFSET 0") }
func (postgres) generation(t string) string { return t + ".gen" }
func (postgres) free() string               { return " FOR UPDATE SKIP LOCKED" }
func (postgres) locked() string             { return " FOR UPDATE" }
func (postgres) in(column string) string    { return column + " = ANY(?)" }
func (postgres) numbers(ids []int64) any    { return ids }

func (postgres) onConflict(key string, columns ...string) string { return onConflict(key, columns) }

// forwardPostgres goes through the slots one after the other, each from its
// cursor: one scan over all partitions would sort what they have.
const forwardPostgres = `SELECT s.slot, d.id, m.published_at, m.uuid, m.key, m.headers, m.payload
 FROM unnest(?::int4[], ?::int4[], ?::int4[], ?::int2[], ?::int8[], ?::int4[]) AS s(slot, topic_id, group_id, part, above, most)
 CROSS JOIN LATERAL (SELECT d.id FROM leat_deliveries d
  WHERE d.topic_id = s.topic_id AND d.group_id = s.group_id AND d.part = s.part AND d.id > s.above ORDER BY d.id LIMIT s.most) d
 LEFT JOIN LATERAL (SELECT m.published_at, m.uuid, m.key, m.headers, m.payload FROM leat_messages m WHERE m.id = d.id AND m.topic_id = s.topic_id OFFSET 0) m ON true`

// ranges are partitions to read, a column each.
type ranges struct {
	slots, parts   []int32
	topics, groups []int64
	low, high      []int64
}

func rangesPostgres(jobs []*job) ranges {
	n := len(jobs)
	r := ranges{make([]int32, n), make([]int32, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)}
	for i, j := range jobs {
		r.slots[i], r.topics[i], r.groups[i], r.parts[i] = int32(i), j.s.src.id, j.s.src.group, j.s.part
	}
	return r
}

func (postgres) forward(ctx context.Context, db *database, jobs []*job, fn func(*row) (bool, error)) error {
	r := rangesPostgres(jobs)
	most := make([]int32, len(jobs))
	for i, j := range jobs {
		r.low[i], most[i] = j.cursor, int32(j.limit) //nolint:gosec // at most what Receive is asked for
	}
	return rowsOf(ctx, db, forwardPostgres, fn, r.slots, r.topics, r.groups, r.parts, r.low, most)
}

const byIDPostgres = `SELECT m.topic_id, m.id, m.published_at, m.uuid, m.key, m.headers, m.payload FROM leat_messages m WHERE m.id = ANY(?) ORDER BY m.id`

func (postgres) byID(ctx context.Context, db *database, ids []int64, fn func(*row) (bool, error)) error {
	return rowsOf(ctx, db, byIDPostgres, fn, ids)
}

// rowsOf gives the rows of messages. Strings and payload of each are a copy,
// in as few pieces as possible.
func rowsOf(ctx context.Context, db *database, query string, fn func(*row) (bool, error), args ...any) error {
	rows, err := db.Pool.Query(ctx, db.SQL(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var m row
	var published *int64
	var id, key, headers, payload lent
	dest := []any{&m.slot, &m.id, &published, &id, &key, &headers, &payload}
	for more := true; more && rows.Next(); {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if m.exists = published != nil; m.exists {
			m.published = *published
			m.own(id, key, headers, payload)
		}
		if more, err = fn(&m); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// lent is a column that is valid until the next row.
type lent []byte

// ScanBytes is for pgx.
func (b *lent) ScanBytes(v []byte) error {
	*b = v
	return nil
}

const behindPostgres = `SELECT s.slot, ARRAY(SELECT d.id FROM leat_deliveries d
  WHERE d.topic_id = s.topic_id AND d.group_id = s.group_id AND d.part = s.part AND d.id >= s.low AND d.id <= s.high ORDER BY d.id LIMIT ?)
 FROM unnest(?::int4[], ?::int4[], ?::int4[], ?::int2[], ?::int8[], ?::int8[]) AS s(slot, topic_id, group_id, part, low, high)`

func (postgres) behind(ctx context.Context, db *database, jobs []*job, limit int) ([][]int64, error) {
	r := rangesPostgres(jobs)
	for i, j := range jobs {
		r.low[i], r.high[i] = j.back, j.cursor
	}
	rows, err := db.Pool.Query(ctx, db.SQL(behindPostgres), limit, r.slots, r.topics, r.groups, r.parts, r.low, r.high)
	if err != nil {
		return nil, err
	}
	found := make([][]int64, len(jobs))
	return found, slotsOf(rows, found)
}

// slotsOf reads rows (slot, ids).
func slotsOf(rows pgx.Rows, into [][]int64) error {
	var slot int
	var ids []int64
	_, err := pgx.ForEachRow(rows, []any{&slot, &ids}, func() error {
		into[slot] = ids
		ids = nil
		return nil
	})
	return err
}

func (postgres) watcher() watcher { return &postgresWatch{old: map[uint64]mark{}} }

// gateKey is the lock that publishers of a generation share.
func gateKey(tp topic, gen int64) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("leat gate " + tp.uid + " " + strconv.FormatInt(gen, 10))) // never fails
	return int64(h.Sum64())                                                          //nolint:gosec // any number will do
}

// pass looks for the two ways of sharing a gate: by its lock, and by its row.
func (postgres) pass(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, gen int64) (passed bool, err error) {
	if err := db.first(ctx, tx, "SELECT pg_try_advisory_xact_lock(?)", []any{gateKey(tp, gen)}, &passed); err != nil || !passed {
		return false, err
	}
	n, err := db.changed(ctx, tx, "DELETE FROM leat_gates WHERE (topic_id, gen) IN (SELECT topic_id, gen FROM leat_gates WHERE topic_id = ? AND gen = ? FOR UPDATE SKIP LOCKED)", tp.id, gen)
	return n > 0, err
}

func (postgres) deleteSome(table string) string {
	return "DELETE FROM " + table + " WHERE (topic_id, group_id, part, id) IN (SELECT topic_id, group_id, part, id FROM " + table + " WHERE topic_id = ? AND group_id = ? LIMIT ?)"
}

func (d postgres) deleteRows(ctx context.Context, db *database, tx *stdsql.Tx, table string, src *source, rows []partRows) error {
	return deleteByPart(ctx, d, db, tx, table, src, rows)
}
