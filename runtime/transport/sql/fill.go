package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

const (
	fillBatch = 2000 // messages looked at in one transaction
	fillPause = 5 * time.Millisecond
)

// fill gives a new group what its topic had before it, a batch at a time so
// that others can write in between. Nobody reads for the group until it is
// complete: what is published meanwhile has higher ids, and does not overtake.
// Whoever declares the group goes on where another has left off.
//
// What the other groups are done with before its batch comes is not there any
// more, as if the group had come later.
func fill(ctx context.Context, db *database, d transport.Declaration) error {
	if db.Dialect.Server() {
		if err := waitAtGates(ctx, db, d); err != nil {
			return err
		}
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, openWait(db.d))
		more := false
		err := db.InTx(waiting, func(tx *stdsql.Tx) (err error) {
			more, err = fillSome(within(waiting, db), db, tx, d)
			return err
		})
		cancel()
		if err != nil {
			return fmt.Errorf("filling group %q: %w", d.Group, err)
		}
		if !more {
			return nil
		}
		if !pause(ctx, fillPause) {
			return fmt.Errorf("filling group %q: %w", d.Group, context.Cause(ctx))
		}
	}
}

func fillSome(ctx context.Context, db *database, tx *stdsql.Tx, d transport.Declaration) (more bool, err error) {
	var group, topicID, from, to int64
	err = db.first(ctx, tx, "SELECT g.id, g.topic_id, g.fill_from, g.fill_to FROM leat_groups g JOIN leat_topics t ON t.id = g.topic_id"+
		" WHERE t.name = ? AND g.name = ? AND g.fill_to < ?", []any{d.Topic, d.Group, ungated}, &group, &topicID, &from, &to)
	if err != nil || group == 0 {
		return false, err
	}
	if db.Dialect.Server() { // others may be at it
		if err := db.first(ctx, tx, "SELECT coalesce(fill_from, 0), coalesce(fill_to, 0) FROM leat_groups WHERE id = ?"+db.d.locked(), []any{group}, &from, &to); err != nil {
			return false, err
		}
	}
	var rows int
	var last stdsql.NullInt64
	err = db.first(ctx, tx, "SELECT count(*), max(id) FROM (SELECT id FROM leat_messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?) AS batch", []any{from, to, fillBatch}, &rows, &last)
	if err != nil {
		return false, err
	}
	query, args := "INSERT INTO leat_deliveries (topic_id, group_id, part, id) SELECT m.topic_id, ?, m.part, m.id FROM leat_messages m WHERE m.topic_id = ? AND m.id > ? AND m.id <= ?",
		[]any{group, topicID, from, last.Int64}
	if db.Dialect.Server() { // what came after the group has a delivery for it, or had
		query += " AND m.gen < (SELECT g.gen FROM leat_groups g WHERE g.id = ?)" + db.d.onConflict("topic_id, group_id, part, id")
		args = append(args, group)
	}
	if _, err := db.exec(ctx, tx, query, args...); err != nil {
		return false, err
	}
	if more = rows == fillBatch; more {
		_, err = db.exec(ctx, tx, "UPDATE leat_groups SET fill_from = ? WHERE id = ?", last.Int64, group)
	} else {
		_, err = db.exec(ctx, tx, "UPDATE leat_groups SET fill_from = NULL, fill_to = NULL WHERE id = ?", group)
	}
	return more, err
}

// filled refuses to read for a group that is still being filled, unless that
// waits for publishers who may take any time. It tells whether it does.
func filled(ctx context.Context, db *database, id int64, name string) (waits bool, err error) {
	var to stdsql.NullInt64
	if err := db.first(ctx, nil, "SELECT fill_to FROM leat_groups WHERE id = ?", []any{id}, &to); err != nil {
		return false, refuse(db.Explain(fmt.Errorf("group %q: %w", name, err)))
	}
	if to.Valid && to.Int64 != ungated {
		return false, fmt.Errorf("group %q is still being given what is older than it: that goes on while a worker with topology: declare starts", name)
	}
	return to.Valid, nil
}

// fillIn goes on with what Declare did not wait for, a batch at a time.
func (c *consumer) fillIn(ctx context.Context) {
	for _, src := range c.sources {
		if !src.unfilled {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, c.t.o.lease/renewals)
		d := transport.Declaration{Topic: src.name, Group: c.cfg.Group}
		more := true
		passed, err := passedFor(limited, c.db, d)
		if err == nil && passed {
			err = c.db.InTx(limited, func(tx *stdsql.Tx) (err error) {
				more, err = fillSome(within(limited, c.db), c.db, tx, d)
				return err
			})
		}
		cancel()
		if err != nil || !passed {
			continue // the next tick tries again
		}
		src.unfilled = more
		c.mu.Lock()
		for _, s := range c.spells {
			if s.src == src {
				s.lookBack(0)
			}
		}
		c.mu.Unlock()
		poke(c.look)
		if more {
			poke(c.act)
		}
	}
}
