package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// A group that comes while others publish: publishers share the gate of the
// topic's generation they know until they have committed. A group raises the
// generation, so that whoever publishes from then on has a delivery for it.
// When the gates of all earlier generations are passed, which is when nobody
// holds them, everything that has none is there to be seen, and filled in.
//
// Databases with one writer at a time need none of this.

// ungated is fill_to of a group whose gates are not passed yet.
const ungated = math.MaxInt64

// gateWait is how long a group waits for publishers that are at work when it
// comes. One that goes on longer, as an open transaction of a person may, holds
// up only what is older than the group: that is filled in when it ends.
const gateWait = 5 * time.Second

// raise begins a new generation of a topic, and gives it.
func raise(ctx context.Context, db *database, tx *stdsql.Tx, tp topic) (gen int64, err error) {
	if _, err := db.exec(ctx, tx, "UPDATE leat_topics SET gen = gen + 1 WHERE id = ?", tp.id); err != nil {
		return 0, err
	}
	if err := db.first(ctx, tx, "SELECT gen FROM leat_topics WHERE id = ?", []any{tp.id}, &gen); err != nil {
		return 0, err
	}
	_, err = db.exec(ctx, tx, "INSERT INTO leat_gates (topic_id, gen) VALUES (?, ?)", tp.id, gen)
	return gen, err
}

// passGates passes those before a generation, and tells whether all are passed.
func passGates(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, gen int64) (bool, error) {
	var gates []int64
	err := db.each(ctx, tx, "SELECT gen FROM leat_gates WHERE topic_id = ? AND gen < ? ORDER BY gen", []any{tp.id, gen}, func(r *stdsql.Rows) error {
		var g int64
		err := r.Scan(&g)
		gates = append(gates, g)
		return err
	})
	for _, g := range gates {
		if err != nil {
			return false, err
		}
		var passed bool
		if passed, err = db.d.pass(ctx, db, tx, tp, g); !passed {
			return false, err
		}
	}
	return err == nil, err
}

// waitAtGates waits a while until they are passed.
func waitAtGates(ctx context.Context, db *database, d transport.Declaration) error {
	until := time.Now().Add(gateWait)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		passed, err := passedFor(ctx, db, d)
		if err != nil || passed || time.Now().After(until) {
			return err
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// passedFor tells whether a group's gates are passed, and what is to be filled
// in is thereby known.
func passedFor(ctx context.Context, db *database, d transport.Declaration) (passed bool, err error) {
	err = db.InTx(ctx, func(tx *stdsql.Tx) error {
		passed = true
		tp, err := findTopic(ctx, db, tx, d.Topic)
		if err != nil {
			return err
		}
		var group, gen int64
		err = db.first(ctx, tx, "SELECT id, gen FROM leat_groups WHERE topic_id = ? AND name = ? AND fill_to = ?"+db.d.locked(), []any{tp.id, d.Group, ungated}, &group, &gen)
		if err != nil || group == 0 {
			return err
		}
		if passed, err = passGates(ctx, db, tx, tp, gen); err != nil || !passed {
			return err
		}
		var last stdsql.NullInt64
		if err := db.first(ctx, tx, "SELECT max(id) FROM leat_messages", nil, &last); err != nil {
			return err
		}
		_, err = db.exec(ctx, tx, "UPDATE leat_groups SET fill_to = ? WHERE id = ?", last.Int64, group)
		return err
	})
	if errors.Is(err, errMissing) {
		return true, nil // dropped meanwhile
	}
	if err != nil {
		err = fmt.Errorf("filling group %q: %w", d.Group, err)
	}
	return passed, err
}
