package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leat-io/leat/runtime/transport"
)

// topic is a row of leat_topics.
type topic struct {
	id         int64
	name       string
	uid        string
	partitions int
}

// Declare makes topics and groups, or checks that they are there. Two things
// about a topic follow the configuration later on, if that names them: its
// retention, and that a dead letter keeps its messages. Its number of
// partitions does not, and another one is refused.
func (t *Transport) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	for _, d := range ds {
		if err := transport.CheckName("topic", d.Topic); err != nil {
			return transport.Refuse(err)
		}
		if d.Group == "" {
			continue
		}
		if err := transport.CheckName("group", d.Group); err != nil {
			return transport.Refuse(err)
		}
	}
	db, err := t.connect(ctx, mode)
	if err != nil || mode == transport.TopologyOff {
		return err
	}
	if mode == transport.TopologyVerify {
		return refuse(t.verify(ctx, db, ds))
	}
	waiting, cancel := context.WithTimeout(ctx, openWait(t.d))
	defer cancel()
	err = db.InTx(waiting, func(tx *stdsql.Tx) error {
		for _, d := range ds {
			if err := t.declare(within(ctx, db), db, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
	for _, d := range ds {
		if err == nil && d.Group != "" {
			err = fill(ctx, db, d)
		}
	}
	return refuse(err)
}

func (t *Transport) declare(ctx context.Context, db *database, tx *stdsql.Tx, d transport.Declaration) error {
	tp, err := t.declareTopic(ctx, db, tx, d)
	if err != nil || d.Group == "" {
		return err
	}
	if err := t.declareGroup(ctx, db, tx, tp, d); err != nil {
		return fmt.Errorf("group %q: %w", d.Group, err)
	}
	return nil
}

func (t *Transport) declareGroup(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, d transport.Declaration) error {
	if _, err := groupID(ctx, db, tx, tp, d.Group); !errors.Is(err, errMissing) {
		return err
	}
	// Whoever makes a group locks the topic, and looks again: one that others
	// have made meanwhile is not begun anew.
	if err := db.first(ctx, tx, "SELECT id FROM leat_topics WHERE id = ?"+t.d.locked(), []any{tp.id}, &tp.id); err != nil {
		return err
	}
	if _, err := groupID(ctx, db, tx, tp, d.Group); !errors.Is(err, errMissing) {
		return err
	}
	if _, err := db.exec(ctx, tx, "INSERT INTO leat_groups (topic_id, name) VALUES (?, ?)", tp.id, d.Group); err != nil {
		return err
	}
	group, err := groupID(ctx, db, tx, tp, d.Group)
	if err != nil {
		return err
	}
	for part := range tp.partitions {
		if _, err := db.exec(ctx, tx, "INSERT INTO leat_partitions (topic_id, group_id, part) VALUES (?, ?, ?)"+t.d.onConflict("topic_id, group_id, part"), tp.id, group, part); err != nil {
			return err
		}
	}
	if db.Dialect.Server() {
		gen, err := raise(ctx, db, tx, tp)
		if err != nil {
			return err
		}
		if _, err := db.exec(ctx, tx, "UPDATE leat_groups SET gen = ? WHERE id = ?", gen, group); err != nil {
			return err
		}
	}
	return t.fillLater(ctx, db, tx, group, d.Start)
}

// fillLater notes what a new group is to be given of what is older. On a server
// that are, for one that begins with the latest, messages of publishers who did
// not know of it yet.
func (t *Transport) fillLater(ctx context.Context, db *database, tx *stdsql.Tx, group int64, start transport.Start) error {
	server := db.Dialect.Server()
	if !server && start == transport.StartLatest {
		return nil
	}
	var last stdsql.NullInt64
	if err := db.first(ctx, tx, "SELECT max(id) FROM leat_messages", nil, &last); err != nil {
		return err
	}
	from, to := int64(0), last.Int64
	if start == transport.StartLatest {
		from = last.Int64
	}
	if server {
		to = ungated
	}
	_, err := db.exec(ctx, tx, "UPDATE leat_groups SET fill_from = ?, fill_to = ? WHERE id = ?", from, to, group)
	return err
}

func (t *Transport) declareTopic(ctx context.Context, db *database, tx *stdsql.Tx, d transport.Declaration) (topic, error) {
	partitions, retention := t.o.partitions, t.o.retention
	if partitions == 0 {
		partitions = defaultPartitions
	}
	if retention == 0 {
		retention = defaultRetention
	}
	tp, err := findTopic(ctx, db, tx, d.Topic)
	if errors.Is(err, errMissing) {
		_, err = db.exec(ctx, tx, "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES (?, ?, ?, ?)"+t.d.onConflict("name"),
			d.Topic, uuid.NewString(), partitions, retention.Microseconds())
		if err == nil {
			tp, err = findTopic(ctx, db, tx, d.Topic)
		}
		if err == nil && db.Dialect.Server() {
			_, err = db.exec(ctx, tx, "INSERT INTO leat_gates (topic_id, gen) SELECT id, gen FROM leat_topics WHERE id = ?"+t.d.onConflict("topic_id, gen"), tp.id)
		}
	}
	if err == nil && t.o.retention != 0 {
		_, err = db.exec(ctx, tx, "UPDATE leat_topics SET retention = ? WHERE id = ? AND retention <> ?", retention.Microseconds(), tp.id, retention.Microseconds())
	}
	if err == nil && d.DeadLetter {
		_, err = db.exec(ctx, tx, "UPDATE leat_topics SET keep = 1 WHERE id = ? AND keep = 0", tp.id)
	}
	if err != nil {
		return topic{}, fmt.Errorf("topic %q: %w", d.Topic, err)
	}
	return tp, t.checkPartitions(tp)
}

// within is the context for statements of a transaction: one that ends costs
// the driver of a file a goroutine for each, and they are short.
func within(ctx context.Context, db *database) context.Context {
	if db.Dialect.Server() {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

func (t *Transport) checkPartitions(tp topic) error {
	if t.o.partitions == 0 || t.o.partitions == tp.partitions {
		return nil
	}
	return transport.Refuse(fmt.Errorf("topic %q has %d partitions and the configuration asks for %d: they are fixed when a topic is made, so leave partitions out or name another topic", tp.name, tp.partitions, t.o.partitions))
}

// verify says all that is missing, at once.
func (t *Transport) verify(ctx context.Context, db *database, ds []transport.Declaration) error {
	var wrong []string
	absent := false
	for _, d := range ds {
		tp, err := findTopic(ctx, db, nil, d.Topic)
		if err == nil && d.Group != "" {
			_, err = groupID(ctx, db, nil, tp, d.Group)
		}
		if err == nil {
			err = t.checkPartitions(tp)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errMissing):
			absent = true
		case !transport.Refused(err):
			return db.Explain(err)
		}
		if text := err.Error(); !slices.Contains(wrong, text) {
			wrong = append(wrong, text)
		}
	}
	if wrong == nil {
		return nil
	}
	text := strings.Join(wrong, "; ")
	if absent {
		text += ": start one worker once with topology: declare, which makes topics and groups, or mend the names"
	}
	return transport.Refuse(fmt.Errorf("database %s: topology: verify: %s", db.Name, text))
}

// findTopic looks within a transaction, or outside of any where tx is nil.
func findTopic(ctx context.Context, db *database, tx *stdsql.Tx, name string) (topic, error) {
	tp := topic{name: name}
	err := db.first(ctx, tx, "SELECT id, uid, partitions FROM leat_topics WHERE name = ?", []any{name}, &tp.id, &tp.uid, &tp.partitions)
	if err == nil && tp.id == 0 {
		return tp, fmt.Errorf("topic %q %w", name, errMissing)
	}
	if err != nil {
		return tp, fmt.Errorf("topic %q: %w", name, err)
	}
	return tp, nil
}

// groupID is likewise.
func groupID(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, name string) (int64, error) {
	var id int64
	err := db.first(ctx, tx, "SELECT id FROM leat_groups WHERE topic_id = ? AND name = ?", []any{tp.id, name}, &id)
	if err == nil && id == 0 {
		return 0, fmt.Errorf("group %q of topic %q %w", name, tp.name, errMissing)
	}
	if err != nil {
		return 0, fmt.Errorf("group %q of topic %q: %w", name, tp.name, err)
	}
	return id, nil
}

// Depth counts what waits. Ready includes what instances hold.
func (t *Transport) Depth(ctx context.Context, topicName, group string) (transport.Depth, error) {
	var depth transport.Depth
	db, err := t.connect(ctx, "")
	if err != nil {
		return depth, err
	}
	tp, err := findTopic(ctx, db, nil, topicName)
	if err != nil {
		return depth, db.Explain(err)
	}
	gid, err := groupID(ctx, db, nil, tp, group)
	if err != nil {
		return depth, db.Explain(err)
	}
	var waiting int64 // with a row in leat_deliveries, as heads whose time has not come
	var oldest stdsql.NullInt64
	args := []any{tp.id, gid, tp.id, gid, tp.id, gid, tp.id, gid}
	err = db.first(ctx, nil, `
SELECT (SELECT count(*) FROM leat_deliveries WHERE topic_id = ? AND group_id = ?),
       (SELECT count(*) FROM leat_delayed WHERE topic_id = ? AND group_id = ?),
       (SELECT count(*) FROM leat_attempts a JOIN leat_deliveries d ON d.topic_id = a.topic_id AND d.group_id = a.group_id AND d.part = a.part AND d.id = a.id
         WHERE a.topic_id = ? AND a.group_id = ? AND a.available_at > `+t.d.clock()+`),
       (SELECT min(m.published_at) FROM leat_partitions p JOIN leat_messages m ON m.id = coalesce(
           (SELECT min(d.id) FROM leat_deliveries d WHERE d.topic_id = p.topic_id AND d.group_id = p.group_id AND d.part = p.part),
           (SELECT min(d.id) FROM leat_delayed d WHERE d.topic_id = p.topic_id AND d.group_id = p.group_id AND d.part = p.part))
         WHERE p.topic_id = ? AND p.group_id = ?)`, args, &depth.Ready, &depth.Delayed, &waiting, &oldest)
	if err != nil {
		return transport.Depth{}, refuse(db.Explain(fmt.Errorf("depth of group %q: %w", group, err)))
	}
	depth.Ready -= waiting
	depth.Delayed += waiting
	if oldest.Valid {
		depth.Oldest = time.UnixMicro(oldest.Int64)
	}
	return depth, nil
}
