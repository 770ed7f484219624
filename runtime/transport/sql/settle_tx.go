package sql

import (
	"context"
	stdsql "database/sql"
	"slices"

	"github.com/leat-io/leat/runtime/transport"
)

// write settles all but the messages: it gives the ids of those acked.
func (c *consumer) write(ctx context.Context, tx *stdsql.Tx, src *source, ws []*work, lost *[]*spell) (acked []int64, err error) {
	parts := make([]int64, len(ws))
	for i, w := range ws {
		parts[i] = int64(w.s.part)
	}
	epochs, err := c.epochs(ctx, tx, src, parts)
	if err != nil {
		return nil, err
	}
	var gone, forget []partRows
	for _, w := range ws {
		if epochs[int64(w.s.part)] != w.s.epoch {
			*lost = append(*lost, w.s)
			continue
		}
		if err := c.writeStates(ctx, tx, w); err != nil {
			return nil, err
		}
		gone = addRows(gone, w.s.part, w.gone)
		if c.mayHaveFailed(w) {
			forget = addRows(forget, w.s.part, w.acks)
		}
		acked = append(acked, w.acks...)
	}
	if err := c.t.d.deleteRows(ctx, c.db, tx, "leat_deliveries", src, gone); err != nil {
		return nil, err
	}
	if err := c.t.d.deleteRows(ctx, c.db, tx, "leat_attempts", src, forget); err != nil {
		return nil, err
	}
	slices.Sort(acked)
	return acked, nil
}

// epochs gives those of the partitions whose rows name us, which stays so
// until the transaction ends.
func (c *consumer) epochs(ctx context.Context, tx *stdsql.Tx, src *source, parts []int64) (map[int64]int64, error) {
	m := map[int64]int64{}
	err := c.db.each(ctx, tx, "SELECT part, epoch FROM leat_partitions WHERE topic_id = ? AND group_id = ? AND "+c.t.d.in("part")+" AND session = ? ORDER BY part"+c.t.d.shared(),
		[]any{src.id, src.group, c.t.d.numbers(parts), c.session}, func(r *stdsql.Rows) error {
			var part, epoch int64
			err := r.Scan(&part, &epoch)
			m[part] = epoch
			return err
		})
	return m, err
}

const rowKey = "topic_id, group_id, part, id"

// writeStates notes failed attempts, and when what failed may come again.
func (c *consumer) writeStates(ctx context.Context, tx *stdsql.Tx, w *work) error {
	s := w.s
	for _, st := range w.states {
		id, due := st.Delivery.Offset, c.due(st)
		if st.Verdict == transport.Delay {
			_, err := c.db.exec(ctx, tx, "INSERT INTO leat_delayed ("+rowKey+", available_at) VALUES (?, ?, ?, ?, ?)"+
				c.t.d.onConflict(rowKey, "available_at"), s.src.id, s.src.group, s.part, id, due)
			if err != nil {
				return err
			}
		}
		_, err := c.db.exec(ctx, tx, "INSERT INTO leat_attempts ("+rowKey+", attempts, available_at, first_failure, last_error) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"+
			c.t.d.onConflict(rowKey, "attempts", "available_at", "first_failure", "last_error"),
			s.src.id, s.src.group, s.part, id, st.Attempts, due, firstFailure(st), []byte(st.LastError))
		if err != nil {
			return err
		}
	}
	return nil
}

// due is when what failed may come again, by the database's clock.
func (c *consumer) due(st transport.Settlement) int64 {
	return c.clock.now() + max(0, st.After.Microseconds())
}

// firstFailure is NULL where it is not known.
func firstFailure(st transport.Settlement) *int64 {
	if st.FirstFailure.IsZero() {
		return nil
	}
	at := st.FirstFailure.UnixMicro()
	return &at
}

// mayHaveFailed tells whether there may be rows in leat_attempts.
func (c *consumer) mayHaveFailed(w *work) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.s.failed || len(w.states) > 0
}

func addRows(rows []partRows, part int32, ids []int64) []partRows {
	if len(ids) == 0 {
		return rows
	}
	slices.Sort(ids)
	return append(rows, partRows{part, ids})
}
