package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

var (
	_ transport.GroupAdmin = (*Transport)(nil)
	_ transport.Migrator   = (*Transport)(nil)
)

// Database names it, without a password.
func (t *Transport) Database() string { return t.to.Name() }

// Pending lists the migrations that were not applied yet.
func (t *Transport) Pending(ctx context.Context) ([]transport.Migration, error) {
	pending, err := sqldb.Pending(ctx, t.to)
	out := make([]transport.Migration, len(pending))
	for i, m := range pending {
		out[i] = transport.Migration(m)
	}
	return out, refuse(err)
}

// Migrate applies them, whatever the topology is: that is asked for by name.
func (t *Transport) Migrate(ctx context.Context) error {
	db, err := sqldb.Open(ctx, t.to)
	if err != nil {
		return refuse(err)
	}
	return db.Close()
}

// Check has the database look through what is stored.
func (t *Transport) Check(ctx context.Context) ([]string, error) {
	complaints, err := sqldb.Check(ctx, t.to)
	return complaints, refuse(err)
}

// Groups lists all groups. A database that is not there has none, and is not made.
func (t *Transport) Groups(ctx context.Context) ([]transport.GroupInfo, error) {
	db, err := t.existing(ctx)
	if err != nil {
		return nil, err
	}
	var all []transport.GroupInfo
	err = db.look(ctx, "SELECT t.name, g.name FROM leat_groups g JOIN leat_topics t ON t.id = g.topic_id ORDER BY t.name, g.name", nil,
		func(r *stdsql.Rows) (bool, error) {
			var g transport.GroupInfo
			err := r.Scan(&g.Topic, &g.Group)
			all = append(all, g)
			return true, err
		})
	if err != nil {
		return nil, refuse(db.Explain(err))
	}
	listed := all[:0]
	for _, g := range all {
		g.Depth, err = t.Depth(ctx, g.Topic, g.Group)
		if errors.Is(err, errMissing) {
			continue // dropped meanwhile
		}
		if err == nil {
			g.Members, err = t.members(ctx, db, g.Topic, g.Group)
		}
		if err != nil {
			return nil, err
		}
		listed = append(listed, g)
	}
	return listed, nil
}

// existing connects to a database that is there.
func (t *Transport) existing(ctx context.Context) (*database, error) {
	if !t.to.Dialect.Server() {
		if _, err := os.Stat(t.to.Path); errors.Is(err, fs.ErrNotExist) {
			return nil, transport.Refuse(fmt.Errorf("database %s does not exist: nothing was published to it or consumed from it", t.to.Path))
		}
	}
	return t.connect(ctx, transport.TopologyVerify)
}

// members gives the instances whose leases run, by the database's clock.
func (t *Transport) members(ctx context.Context, db *database, topicName, group string) ([]string, error) {
	var alive []string
	err := db.look(ctx, t.alive(), []any{topicName, group}, func(r *stdsql.Rows) (bool, error) {
		var instance string
		err := r.Scan(&instance)
		alive = append(alive, instance)
		return true, err
	})
	return alive, refuse(db.Explain(err))
}

func (t *Transport) alive() string {
	return `SELECT m.instance FROM leat_members m JOIN leat_topics t ON t.id = m.topic_id JOIN leat_groups g ON g.id = m.group_id
 WHERE t.name = ? AND g.name = ? AND m.lease_until > ` + t.d.clock() + ` ORDER BY m.instance`
}

// dropBatch bounds what one transaction deletes, so that a large group holds
// up nobody.
const dropBatch = 5000

// DropGroup deletes what waits for a group in batches, and with the last of it
// the group. Each batch looks for members, who may have come meanwhile.
// Messages that no other group waits for stay for the topic's retention.
func (t *Transport) DropGroup(ctx context.Context, topicName, group string) error {
	db, err := t.existing(ctx)
	if err != nil {
		return err
	}
	for {
		done := false
		err := db.InTx(ctx, func(tx *stdsql.Tx) error {
			done, err = t.dropSome(within(ctx, db), db, tx, topicName, group)
			return err
		})
		if err != nil || done {
			return refuse(db.Explain(err))
		}
		if !pause(ctx, time.Millisecond) { // others write in between
			return fmt.Errorf("group %q of topic %q is dropped half: drop it again: %w", group, topicName, context.Cause(ctx))
		}
	}
}

// dropSome deletes one batch; done says that the group went with it.
func (t *Transport) dropSome(ctx context.Context, db *database, tx *stdsql.Tx, topicName, group string) (done bool, err error) {
	tp, err := findTopic(ctx, db, tx, topicName)
	if err != nil {
		return false, noGroup(err)
	}
	id, err := groupID(ctx, db, tx, tp, group)
	if err != nil {
		return false, noGroup(err)
	}
	var members []string
	err = db.each(ctx, tx, t.alive(), []any{topicName, group}, func(r *stdsql.Rows) error {
		var instance string
		err := r.Scan(&instance)
		members = append(members, instance)
		return err
	})
	if err != nil {
		return false, err
	}
	if len(members) > 0 {
		return false, &transport.GroupInUseError{Topic: topicName, Group: group, Members: members}
	}
	left := int64(dropBatch)
	for _, table := range []string{"leat_deliveries", "leat_delayed", "leat_attempts"} {
		n, err := db.changed(ctx, tx, t.d.deleteSome(table), tp.id, id, left)
		if err != nil {
			return false, fmt.Errorf("group %q of topic %q: %s: %w", group, topicName, table, err)
		}
		if left -= n; left == 0 {
			return false, nil
		}
	}
	for _, rest := range []string{"leat_partitions WHERE group_id = ?", "leat_members WHERE group_id = ?", "leat_groups WHERE id = ?"} {
		if _, err := db.exec(ctx, tx, "DELETE FROM "+rest, id); err != nil {
			return false, fmt.Errorf("group %q of topic %q: %w", group, topicName, err)
		}
	}
	if db.Dialect.Server() { // publishers are to learn that it has gone
		_, err = raise(ctx, db, tx, tp)
	}
	return true, err
}

func noGroup(err error) error {
	if errors.Is(err, errMissing) {
		return fmt.Errorf("%w: %w", transport.ErrNoGroup, err)
	}
	return err
}
