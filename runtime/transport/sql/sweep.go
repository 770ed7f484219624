package sql

import (
	"context"
	stdsql "database/sql"
	"math/rand/v2"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
)

const (
	sweepEvery = time.Minute
	sweepBatch = 1000 // messages looked at in one statement
	sweepPause = 50 * time.Millisecond
)

// sweeper deletes messages past their topic's retention that nobody waits for:
// those no group reads, and those whose deliveries went without them.
type sweeper struct {
	db *sqldb.DB
	d  dialect
}

func newSweeper(db *sqldb.DB, d dialect) *sweeper { return &sweeper{db: db, d: d} }

// run sweeps now and then until ctx ends. An error ends a round and nothing
// else: whoever consumes or publishes meets it too, and says so.
func (s *sweeper) run(ctx context.Context) {
	wait := rand.N(sweepEvery) //nolint:gosec // so that workers started together take turns
	for pause(ctx, wait) {
		for from := int64(0); ; {
			next, err := s.sweep(ctx, from)
			if err != nil || next == from || !pause(ctx, sweepPause) {
				break
			}
			from = next
		}
		wait = sweepEvery/2 + rand.N(sweepEvery) //nolint:gosec // likewise
	}
}

// pause waits, and reports false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// sweep looks at one batch of messages above id from, and gives the last id
// it saw that is old enough for some topic: from itself, when there are none.
func (s *sweeper) sweep(ctx context.Context, from int64) (int64, error) {
	var last stdsql.NullInt64
	err := look(ctx, s.db, "SELECT max(id) FROM (SELECT id, published_at FROM leat_messages WHERE id > ? ORDER BY id LIMIT ?)"+
		" WHERE published_at < "+s.d.clock()+" - (SELECT min(retention) FROM leat_topics)", []any{from, sweepBatch},
		func(r *stdsql.Rows) (bool, error) { return true, r.Scan(&last) })
	if err != nil || !last.Valid {
		return from, err
	}
	var ids []int64
	err = look(ctx, s.db, s.unwanted(), []any{from, last.Int64}, func(r *stdsql.Rows) (bool, error) {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return true, err
	})
	if err != nil || len(ids) == 0 {
		return last.Int64, err
	}
	// Looked at again in the transaction that deletes: a group may have come
	// to want them meanwhile.
	err = s.db.InTx(ctx, func(tx *stdsql.Tx) error {
		_, err := exec(ctx, s.db, tx, "DELETE FROM leat_messages WHERE id IN ("+s.d.ids()+") AND id IN ("+s.unwanted()+")",
			s.d.numbers(ids), from, last.Int64)
		return err
	})
	return last.Int64, err
}

func (s *sweeper) unwanted() string {
	return `SELECT m.id FROM leat_messages m JOIN leat_topics t ON t.id = m.topic_id
 WHERE m.id > ? AND m.id <= ? AND t.keep = 0 AND m.published_at < ` + s.d.clock() + ` - t.retention AND` + unread
}

// unread is a condition on m: no group waits for it. It names every column of
// the primary keys, so that it costs a look-up for each group.
const unread = ` NOT EXISTS (SELECT 1 FROM leat_deliveries d WHERE d.topic_id = m.topic_id
   AND d.group_id IN (SELECT g.id FROM leat_groups g WHERE g.topic_id = m.topic_id) AND d.part = m.part AND d.id = m.id)
 AND NOT EXISTS (SELECT 1 FROM leat_delayed d WHERE d.topic_id = m.topic_id
   AND d.group_id IN (SELECT g.id FROM leat_groups g WHERE g.topic_id = m.topic_id) AND d.part = m.part AND d.id = m.id)`
