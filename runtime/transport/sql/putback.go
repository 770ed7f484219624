package sql

import (
	"context"
	stdsql "database/sql"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// putBack makes delayed rows ready that are due.
func (c *consumer) putBack(ctx context.Context) {
	for _, src := range c.sources {
		c.mu.Lock()
		due := !src.due.IsZero() && !time.Now().Before(src.due)
		if due {
			src.due = time.Time{}
		}
		c.mu.Unlock()
		if !due {
			continue
		}
		if err := c.putBackSource(ctx, src); err != nil && ctx.Err() == nil {
			if !c.passing(err) {
				c.fail(refuse(err))
			}
			c.mu.Lock()
			src.dueBy(time.Now().Add(c.t.o.lease / renewals))
			c.mu.Unlock()
		}
	}
}

const dueRows = 1000

// delayedByTime goes by the index of times: however many rows wait, only those
// that are due are read. MariaDB and MySQL have to be told; to others it is a comment.
const delayedByTime = " FROM leat_delayed /*! FORCE INDEX (due) */ WHERE topic_id = ? AND group_id = ?"

func (c *consumer) putBackSource(ctx context.Context, src *source) error {
	owned, _ := c.owned(src)
	parts := make([]int64, 0, len(owned))
	for p := range owned {
		parts = append(parts, p)
	}
	limited, cancel := context.WithTimeout(ctx, c.t.o.lease/renewals)
	defer cancel()
	ctx = within(limited, c.db)
	var ready map[int64][]int64
	var wait stdsql.NullInt64
	err := c.db.InTx(limited, func(tx *stdsql.Tx) error {
		ready, wait = map[int64][]int64{}, stdsql.NullInt64{}
		now := c.clock.now()
		epochs, err := c.epochs(ctx, tx, src, parts)
		if err != nil {
			return err
		}
		err = c.db.each(ctx, tx, "SELECT part, id"+delayedByTime+" AND available_at <= ?"+
			" AND "+c.t.d.in("part")+" ORDER BY available_at LIMIT ?", []any{src.id, src.group, now, c.t.d.numbers(parts), dueRows}, func(r *stdsql.Rows) error {
			var part, id int64
			err := r.Scan(&part, &id)
			if s := owned[part]; s != nil && epochs[part] == s.epoch {
				ready[part] = append(ready[part], id)
			}
			return err
		})
		if err != nil {
			return err
		}
		for part, ids := range ready {
			if err := c.move(ctx, tx, src, part, ids); err != nil {
				return err
			}
		}
		return c.db.first(ctx, tx, "SELECT available_at - ?"+delayedByTime+" AND "+c.t.d.in("part")+" ORDER BY available_at LIMIT 1",
			[]any{now, src.id, src.group, c.t.d.numbers(parts)}, &wait)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	if wait.Valid {
		src.dueBy(time.Now().Add(max(dueSpaced, time.Duration(wait.Int64)*time.Microsecond)))
	}
	for part, ids := range ready {
		for _, id := range ids {
			owned[part].lookBack(id)
		}
		owned[part].failed = true
	}
	c.mu.Unlock()
	if len(ready) > 0 {
		poke(c.look)
	}
	return nil
}

// move takes rows from leat_delayed to leat_deliveries.
func (c *consumer) move(ctx context.Context, tx *stdsql.Tx, src *source, part int64, ids []int64) error {
	slices.Sort(ids)
	args := []any{src.id, src.group, part, c.t.d.numbers(ids)}
	these := " FROM leat_delayed WHERE topic_id = ? AND group_id = ? AND part = ? AND " + c.t.d.in("id")
	_, err := c.db.exec(ctx, tx, "INSERT INTO leat_deliveries ("+rowKey+") SELECT "+rowKey+these+c.t.d.onConflict(rowKey), args...)
	if err != nil {
		return err
	}
	return c.t.d.deleteRows(ctx, c.db, tx, "leat_delayed", src, []partRows{{int32(part), ids}}) //nolint:gosec // at most maxPartitions
}

// bury acks deliveries that have no message.
func (c *consumer) bury(ctx context.Context) {
	c.mu.Lock()
	orphans := c.orphans
	c.orphans = map[*spell][]int64{}
	c.mu.Unlock()
	var batch []transport.Settlement
	for s, ids := range orphans {
		for _, id := range ids {
			batch = append(batch, transport.Settlement{Verdict: transport.Ack, Delivery: &transport.Delivery{Offset: id, Assignment: s.a, Tag: s}})
		}
	}
	if len(batch) == 0 {
		return
	}
	if c.cfg.Log != nil {
		c.cfg.Log.Warn("deliveries without a message removed", "consumer", c.cfg.Name, "count", len(batch))
	}
	ctx, cancel := context.WithTimeout(ctx, c.t.o.lease/renewals)
	defer cancel()
	if err := c.Settle(ctx, batch); err != nil && c.cfg.Log != nil {
		c.cfg.Log.Warn("deliveries without a message not removed", "consumer", c.cfg.Name, "error", err)
	}
}
