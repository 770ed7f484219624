package sql

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leat-io/leat/runtime/transport"
)

// ownedPostgres are the partitions that are ours still, of those given with
// the epochs we have them by. They stay so until the transaction ends.
const ownedPostgres = `WITH f AS MATERIALIZED (SELECT p.part FROM leat_partitions p JOIN unnest(?2::int2[], ?3::int8[]) e(part, epoch)
  ON p.part = e.part AND p.epoch = e.epoch WHERE p.topic_id = ?4 AND p.group_id = ?1 ORDER BY p.part FOR SHARE OF p)`

// settlePostgres has no join in its deletes, so that their plans do not depend
// on statistics, and intersects lists: comparing each of one with all of the
// other is slow where they are long. Messages go with their only group's deliveries, while it is
// the only one.
const settlePostgres = ownedPostgres + `, d AS (DELETE FROM leat_deliveries WHERE topic_id = ?4 AND group_id = ?1
  AND part = ANY(ARRAY(SELECT part FROM f)) AND id = ANY(?5::int8[]) RETURNING id),
 t AS MATERIALIZED (SELECT ?7 AND gen = ?8 AS alone FROM leat_topics WHERE id = ?4),
 m AS (DELETE FROM leat_messages WHERE topic_id = ?4 AND id = ANY(ARRAY(SELECT d.id FROM d, t WHERE t.alone INTERSECT SELECT unnest(?6::int8[]))))
 SELECT ARRAY(SELECT part FROM f)::int8[], (SELECT alone FROM t)`

const gateSharedPostgres = "SELECT pg_try_advisory_xact_lock_shared(?)"

const (
	delayPostgres = ownedPostgres + ` INSERT INTO leat_delayed (topic_id, group_id, part, id, available_at)
 SELECT ?4, ?1, u.part, u.id, u.due FROM unnest(?5::int2[], ?6::int8[], ?7::int8[]) u(part, id, due) WHERE u.part IN (SELECT part FROM f)
 ON CONFLICT (topic_id, group_id, part, id) DO UPDATE SET available_at = excluded.available_at`
	attemptPostgres = ownedPostgres + ` INSERT INTO leat_attempts (topic_id, group_id, part, id, attempts, available_at, first_failure, last_error)
 SELECT ?4, ?1, u.part, u.id, u.attempts, u.due, u.failed, u.error
 FROM unnest(?5::int2[], ?6::int8[], ?7::int4[], ?8::int8[], ?9::int8[], ?10::bytea[]) u(part, id, attempts, due, failed, error) WHERE u.part IN (SELECT part FROM f)
 ON CONFLICT (topic_id, group_id, part, id) DO UPDATE SET attempts = excluded.attempts, available_at = excluded.available_at,
  first_failure = excluded.first_failure, last_error = excluded.last_error`
	forgetPostgres = ownedPostgres + ` DELETE FROM leat_attempts WHERE topic_id = ?4 AND group_id = ?1
 AND part = ANY(ARRAY(SELECT part FROM f)) AND id = ANY(?5::int8[])`
)

// settle is one round trip. In each of its statements the lease rows decide
// anew; once the first has locked them they do not change.
func (postgres) settle(ctx context.Context, c *consumer, src *source, ws []*work) (lost []*spell, err error) {
	parts, epochs := make([]int32, len(ws)), make([]int64, len(ws))
	var gone, acks, forget []int64
	var st statesPostgres
	for i, w := range ws {
		parts[i], epochs[i] = w.s.part, w.s.epoch
		gone, acks = append(gone, w.gone...), append(acks, w.acks...)
		if c.mayHaveFailed(w) {
			forget = append(forget, w.acks...)
		}
		for _, s := range w.states {
			st.add(c, w.s.part, s)
		}
	}
	slices.Sort(gone)
	gen, alone := c.audience(src)
	var owned []int64
	var cleaned *bool
	err = c.db.Retry(ctx, func() error {
		b := &pgx.Batch{}
		if alone {
			b.Queue(c.db.SQL(gateSharedPostgres), gateKey(src.topic, gen))
		}
		b.Queue(c.db.SQL(settlePostgres), src.group, parts, epochs, src.id, gone, acks, alone, gen).
			QueryRow(func(r pgx.Row) error { return r.Scan(&owned, &cleaned) })
		st.queue(c, b, src, parts, epochs)
		if len(forget) > 0 {
			b.Queue(c.db.SQL(forgetPostgres), src.group, parts, epochs, src.id, forget)
		}
		return c.db.Pool.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, err
	}
	for _, w := range ws {
		if !slices.Contains(owned, int64(w.s.part)) {
			lost = append(lost, w.s)
		}
	}
	if cleaned == nil || !*cleaned {
		c.clean(ctx, src, acks)
	}
	return lost, nil
}

// statesPostgres are failed attempts, a column each.
type statesPostgres struct {
	delayed struct {
		parts   []int32
		id, due []int64
	}
	failed struct {
		at       map[int64]int // by id
		parts    []int32
		id, due  []int64
		attempts []int32
		first    []*int64
		class    [][]byte
	}
}

func (t *statesPostgres) add(c *consumer, part int32, s transport.Settlement) {
	due := c.due(s)
	if s.Verdict == transport.Delay {
		d := &t.delayed
		d.parts, d.id, d.due = append(d.parts, part), append(d.id, s.Delivery.Offset), append(d.due, due)
	}
	f := &t.failed
	if i, ok := f.at[s.Delivery.Offset]; ok { // the later one stands
		f.due[i], f.attempts[i], f.first[i], f.class[i] = due, int32(s.Attempts), firstFailure(s), []byte(s.LastError) //nolint:gosec // attempts are few
		return
	}
	if f.at == nil {
		f.at = map[int64]int{}
	}
	f.at[s.Delivery.Offset] = len(f.id)
	f.parts, f.id, f.due = append(f.parts, part), append(f.id, s.Delivery.Offset), append(f.due, due)
	f.attempts, f.first, f.class = append(f.attempts, int32(s.Attempts)), append(f.first, firstFailure(s)), append(f.class, []byte(s.LastError)) //nolint:gosec // attempts are few
}

func (t *statesPostgres) queue(c *consumer, b *pgx.Batch, src *source, parts []int32, epochs []int64) {
	if d := t.delayed; len(d.id) > 0 {
		b.Queue(c.db.SQL(delayPostgres), src.group, parts, epochs, src.id, d.parts, d.id, d.due)
	}
	if f := t.failed; len(f.id) > 0 {
		b.Queue(c.db.SQL(attemptPostgres), src.group, parts, epochs, src.id, f.parts, f.id, f.attempts, f.due, f.first, f.class)
	}
}

// cleanPostgres takes locks in one order, and leaves out what another cleaner has.
const cleanPostgres = `WITH t AS MATERIALIZED (SELECT gen = ?1 AS known FROM leat_topics WHERE id = ?2),
 d AS (DELETE FROM leat_messages WHERE id = ANY(ARRAY(SELECT m.id FROM leat_messages m, t
  WHERE t.known AND m.id = ANY(?3::int8[]) AND m.topic_id = ?2 AND %s ORDER BY m.id FOR UPDATE OF m SKIP LOCKED)))
 SELECT coalesce((SELECT known FROM t), true)`

func (d postgres) clean(ctx context.Context, db *database, tp topic, gen int64, ids []int64) (known bool, err error) {
	err = db.Retry(ctx, func() error {
		b := &pgx.Batch{}
		b.Queue(db.SQL(gateSharedPostgres), gateKey(tp, gen))
		b.Queue(db.SQL(fmt.Sprintf(cleanPostgres, d.unread())), gen, tp.id, ids).QueryRow(func(r pgx.Row) error { return r.Scan(&known) })
		return db.Pool.SendBatch(ctx, b).Close()
	})
	return known, err
}
