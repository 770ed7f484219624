package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
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
func fill(ctx context.Context, db *sqldb.DB, d transport.Declaration) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, openWait)
		more := false
		err := db.InTx(waiting, func(tx *stdsql.Tx) (err error) {
			more, err = fillSome(context.WithoutCancel(ctx), tx, d)
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

func fillSome(ctx context.Context, tx *stdsql.Tx, d transport.Declaration) (more bool, err error) {
	var group, topicID, from, to int64
	err = tx.QueryRowContext(ctx, "SELECT g.id, g.topic_id, g.fill_from, g.fill_to FROM leat_groups g JOIN leat_topics t ON t.id = g.topic_id"+
		" WHERE t.name = ? AND g.name = ? AND g.fill_to IS NOT NULL", d.Topic, d.Group).Scan(&group, &topicID, &from, &to)
	if errors.Is(err, stdsql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var rows int
	var last stdsql.NullInt64
	err = tx.QueryRowContext(ctx, "SELECT count(*), max(id) FROM (SELECT id FROM leat_messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)", from, to, fillBatch).Scan(&rows, &last)
	if err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO leat_deliveries (topic_id, group_id, part, id) SELECT topic_id, ?, part, id FROM leat_messages WHERE topic_id = ? AND id > ? AND id <= ?",
		group, topicID, from, last.Int64)
	if err != nil {
		return false, err
	}
	if more = rows == fillBatch; more {
		_, err = tx.ExecContext(ctx, "UPDATE leat_groups SET fill_from = ? WHERE id = ?", last.Int64, group)
	} else {
		_, err = tx.ExecContext(ctx, "UPDATE leat_groups SET fill_from = NULL, fill_to = NULL WHERE id = ?", group)
	}
	return more, err
}

// filled refuses to read for a group that is still being filled.
func filled(ctx context.Context, db *sqldb.DB, id int64, name string) error {
	var n int
	err := db.Reader.QueryRowContext(ctx, "SELECT count(*) FROM leat_groups WHERE id = ? AND fill_to IS NOT NULL", id).Scan(&n)
	if err != nil {
		return refuse(db.Explain(fmt.Errorf("group %q: %w", name, err)))
	}
	if n > 0 {
		return fmt.Errorf("group %q is still being given what is older than it: that goes on while a worker with topology: declare starts", name)
	}
	return nil
}
