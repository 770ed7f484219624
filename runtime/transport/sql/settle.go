package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// work is what a batch of settlements comes to for one spell.
type work struct {
	s       *spell
	acks    []int64
	states  []transport.Settlement // of Delay and Record
	gone    []int64                // ids that are not ready any more: acked or delayed
	release []int64
}

// Settle writes one transaction for the batch. What is not ours any more,
// by the epochs that this transaction sees, changes nothing.
func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	bySource := map[*source][]*work{}
	works := map[*spell]*work{}
	writes := false
	ours, err := c.ours(batch)
	if err != nil {
		return err
	}
	for _, st := range ours {
		s := spellOf(st.Delivery)
		w := works[s]
		if w == nil {
			w = &work{s: s}
			works[s] = w
			bySource[s.src] = append(bySource[s.src], w)
		}
		writes = w.add(st) || writes
	}
	var lost map[*spell]bool
	if writes {
		unbroken := context.WithoutCancel(ctx)
		err = c.db.InTx(ctx, func(tx *stdsql.Tx) error {
			lost = map[*spell]bool{}
			for src, ws := range bySource {
				if err := c.write(unbroken, tx, src, ws, lost); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return refuse(err)
		}
	}
	c.forget(works)
	if len(lost) > 0 {
		c.lose(func(s *spell) bool { return lost[s] })
	}
	return nil
}

// ours leaves out what is not ours to tell any more: of a spell that is over,
// or settled before.
func (c *consumer) ours(batch []transport.Settlement) ([]transport.Settlement, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ours := make([]transport.Settlement, 0, len(batch))
	for _, st := range batch {
		if st.Verdict < transport.Ack || st.Verdict > transport.Record {
			return nil, fmt.Errorf("settle %s: verdict %d is not known", st.Delivery.Coordinates(), st.Verdict)
		}
		if s := spellOf(st.Delivery); !s.a.Revoked() && s.holds(st.Delivery.Offset) {
			ours = append(ours, st)
		}
	}
	return ours, nil
}

// add sorts one settlement in, and tells whether it writes anything.
func (w *work) add(st transport.Settlement) bool {
	id := st.Delivery.Offset
	switch st.Verdict {
	case transport.Ack:
		w.acks = append(w.acks, id)
		w.gone = append(w.gone, id)
	case transport.Delay:
		w.states = append(w.states, st)
		w.gone = append(w.gone, id)
	case transport.Record:
		w.states = append(w.states, st)
	case transport.Release:
		w.release = append(w.release, id)
		return false
	}
	return true
}

// write does all of one source's.
func (c *consumer) write(ctx context.Context, tx *stdsql.Tx, src *source, ws []*work, lost map[*spell]bool) error {
	epochs, err := c.epochs(ctx, tx, src)
	if err != nil {
		return err
	}
	var acked []int64
	for _, w := range ws {
		if epochs[int64(w.s.part)] != w.s.epoch {
			lost[w.s] = true
			continue
		}
		if err := c.writeStates(ctx, tx, w); err != nil {
			return err
		}
		if err := c.deleteIDs(ctx, tx, "leat_deliveries", w.s, w.gone); err != nil {
			return err
		}
		if err := c.deleteAttempts(ctx, tx, w); err != nil {
			return err
		}
		acked = append(acked, w.acks...)
	}
	return c.deleteMessages(ctx, tx, src, acked)
}

// epochs gives those of the partitions whose rows name us.
func (c *consumer) epochs(ctx context.Context, tx *stdsql.Tx, src *source) (map[int64]int64, error) {
	m := map[int64]int64{}
	err := each(ctx, c.db, tx, "SELECT part, epoch FROM leat_partitions WHERE topic_id = ? AND group_id = ? AND session = ?",
		[]any{src.id, src.group, c.session}, func(r *stdsql.Rows) error {
			var part, epoch int64
			err := r.Scan(&part, &epoch)
			m[part] = epoch
			return err
		})
	return m, err
}

// writeStates notes failed attempts, and when what failed may come again.
func (c *consumer) writeStates(ctx context.Context, tx *stdsql.Tx, w *work) error {
	s := w.s
	for _, st := range w.states {
		id, due := st.Delivery.Offset, c.clock.now()+max(0, st.After.Microseconds())
		if st.Verdict == transport.Delay {
			_, err := exec(ctx, c.db, tx, "INSERT INTO leat_delayed (topic_id, group_id, part, id, available_at) VALUES (?, ?, ?, ?, ?)"+
				" ON CONFLICT (topic_id, group_id, part, id) DO UPDATE SET available_at = excluded.available_at", s.src.id, s.src.group, s.part, id, due)
			if err != nil {
				return err
			}
		}
		var first any
		if !st.FirstFailure.IsZero() {
			first = st.FirstFailure.UnixMicro()
		}
		_, err := exec(ctx, c.db, tx, "INSERT INTO leat_attempts (topic_id, group_id, part, id, attempts, available_at, first_failure, last_error) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"+
			" ON CONFLICT (topic_id, group_id, part, id) DO UPDATE SET attempts = excluded.attempts, available_at = excluded.available_at, first_failure = excluded.first_failure, last_error = excluded.last_error",
			s.src.id, s.src.group, s.part, id, st.Attempts, due, first, exact(st.LastError))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *consumer) deleteIDs(ctx context.Context, tx *stdsql.Tx, table string, s *spell, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	_, err := exec(ctx, c.db, tx, "DELETE FROM "+table+" WHERE topic_id = ? AND group_id = ? AND part = ? AND id IN ("+c.t.d.ids()+")",
		s.src.id, s.src.group, s.part, c.t.d.numbers(ids))
	return err
}

func (c *consumer) deleteAttempts(ctx context.Context, tx *stdsql.Tx, w *work) error {
	c.mu.Lock()
	failed := w.s.failed
	c.mu.Unlock()
	if !failed && len(w.states) == 0 {
		return nil
	}
	return c.deleteIDs(ctx, tx, "leat_attempts", w.s, w.acks)
}

// deleteMessages deletes what no group waits for any more.
func (c *consumer) deleteMessages(ctx context.Context, tx *stdsql.Tx, src *source, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	var groups int
	if err := first(ctx, c.db, tx, "SELECT count(*) FROM leat_groups WHERE topic_id = ?", []any{src.id}, &groups); err != nil {
		return err
	}
	slices.Sort(ids)
	query := "DELETE FROM leat_messages AS m WHERE m.id IN (" + c.t.d.ids() + ")"
	if groups > 1 {
		query += " AND" + unread
	}
	_, err := exec(ctx, c.db, tx, query, c.t.d.numbers(ids))
	return err
}

// forget lets go of what is settled, after the commit.
func (c *consumer) forget(works map[*spell]*work) {
	now := time.Now()
	released, due := false, false
	c.mu.Lock()
	for s, w := range works {
		s.drop(w.gone, c.scanning)
		for _, id := range w.release {
			if !s.holds(id) {
				continue
			}
			delete(s.held, id)
			s.lookBack(id)
			released = true
		}
		for _, st := range w.states {
			s.failed = true
			if st.Verdict == transport.Delay {
				s.src.dueBy(now.Add(st.After))
				due = true
			}
		}
		due = due || (!s.leaveBy.IsZero() && s.outstanding() == 0)
	}
	c.mu.Unlock()
	if released {
		poke(c.look)
	}
	if due {
		poke(c.act)
	}
}
