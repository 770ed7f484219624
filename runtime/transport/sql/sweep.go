package sql

import (
	"context"
	stdsql "database/sql"
	"math/rand/v2"
	"time"
)

const (
	sweepEvery = time.Minute
	sweepBatch = 1000 // messages looked at in one statement
	sweepPause = 50 * time.Millisecond
)

// sweeper deletes messages past their topic's retention that nobody waits for:
// those no group reads, and those whose deliveries went without them.
type sweeper struct{ db *database }

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
	err := s.db.first(ctx, nil, "SELECT max(id) FROM (SELECT id, published_at FROM leat_messages WHERE id > ? ORDER BY id LIMIT ?) AS batch"+
		" WHERE published_at < "+s.db.d.clock()+" - (SELECT min(retention) FROM leat_topics)", []any{from, sweepBatch}, &last)
	if err != nil || !last.Valid {
		return from, err
	}
	type generation struct {
		topic topic
		gen   int64
	}
	ids := map[generation][]int64{}
	err = s.db.look(ctx, "SELECT m.id, t.id, t.uid, "+s.db.d.generation("t")+" FROM leat_messages m JOIN leat_topics t ON t.id = m.topic_id"+
		" WHERE m.id > ? AND m.id <= ? AND t.keep = 0 AND m.published_at < "+s.db.d.clock()+" - t.retention AND"+s.db.d.unread()+" ORDER BY m.id",
		[]any{from, last.Int64}, func(r *stdsql.Rows) (bool, error) {
			var id int64
			var g generation
			err := r.Scan(&id, &g.topic.id, &g.topic.uid, &g.gen)
			ids[g] = append(ids[g], id)
			return true, err
		})
	for g, ids := range ids {
		if err != nil {
			break
		}
		// Looked at again as they are deleted: a group may have come to want
		// them meanwhile. Where that was so, the next round is in time.
		_, err = s.db.d.clean(ctx, s.db, g.topic, g.gen, ids)
	}
	return last.Int64, err
}

// unreadInFile is a condition on m: no group waits for it. It names every column of
// the primary keys, so that it costs a look-up for each group.
const unreadInFile = ` NOT EXISTS (SELECT 1 FROM leat_deliveries d WHERE d.topic_id = m.topic_id
   AND d.group_id IN (SELECT g.id FROM leat_groups g WHERE g.topic_id = m.topic_id) AND d.part = m.part AND d.id = m.id)
 AND NOT EXISTS (SELECT 1 FROM leat_delayed d WHERE d.topic_id = m.topic_id
   AND d.group_id IN (SELECT g.id FROM leat_groups g WHERE g.topic_id = m.topic_id) AND d.part = m.part AND d.id = m.id)`
