package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leat-io/leat/internal/sqldb"
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
	waiting, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	err = db.InTx(waiting, func(tx *stdsql.Tx) error {
		for _, d := range ds {
			if err := t.declare(context.WithoutCancel(ctx), tx, d); err != nil {
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

func (t *Transport) declare(ctx context.Context, tx *stdsql.Tx, d transport.Declaration) error {
	tp, err := t.declareTopic(ctx, tx, d)
	if err != nil || d.Group == "" {
		return err
	}
	res, err := tx.ExecContext(ctx, "INSERT INTO leat_groups (topic_id, name) VALUES (?, ?) ON CONFLICT DO NOTHING", tp.id, d.Group)
	if err != nil {
		return fmt.Errorf("group %q: %w", d.Group, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}
	group, err := groupID(ctx, tx, tp, d.Group)
	if err != nil {
		return err
	}
	for part := range tp.partitions {
		if _, err := tx.ExecContext(ctx, "INSERT INTO leat_partitions (topic_id, group_id, part) VALUES (?, ?, ?)", tp.id, group, part); err != nil {
			return fmt.Errorf("group %q: %w", d.Group, err)
		}
	}
	if d.Start == transport.StartLatest {
		return nil
	}
	_, err = tx.ExecContext(ctx, "UPDATE leat_groups SET fill_from = 0, fill_to = (SELECT max(id) FROM leat_messages) WHERE id = ?", group)
	if err != nil {
		return fmt.Errorf("group %q: %w", d.Group, err)
	}
	return nil
}

func (t *Transport) declareTopic(ctx context.Context, tx *stdsql.Tx, d transport.Declaration) (topic, error) {
	partitions, retention := t.o.Partitions, t.o.Retention
	if partitions == 0 {
		partitions = defaultPartitions
	}
	if retention == 0 {
		retention = defaultRetention
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
		d.Topic, uuid.NewString(), partitions, retention.Microseconds())
	if err == nil && t.o.Retention != 0 {
		_, err = tx.ExecContext(ctx, "UPDATE leat_topics SET retention = ? WHERE name = ? AND retention <> ?", retention.Microseconds(), d.Topic, retention.Microseconds())
	}
	if err == nil && d.DeadLetter {
		_, err = tx.ExecContext(ctx, "UPDATE leat_topics SET keep = 1 WHERE name = ? AND keep = 0", d.Topic)
	}
	if err != nil {
		return topic{}, fmt.Errorf("topic %q: %w", d.Topic, err)
	}
	tp, err := findTopic(ctx, tx, d.Topic)
	if err != nil {
		return tp, err
	}
	return tp, t.checkPartitions(tp)
}

func (t *Transport) checkPartitions(tp topic) error {
	if t.o.Partitions == 0 || t.o.Partitions == tp.partitions {
		return nil
	}
	return transport.Refuse(fmt.Errorf("topic %q has %d partitions and the configuration asks for %d: they are fixed when a topic is made, so leave partitions out or name another topic", tp.name, tp.partitions, t.o.Partitions))
}

// verify says all that is missing, at once.
func (t *Transport) verify(ctx context.Context, db *sqldb.DB, ds []transport.Declaration) error {
	var missing []error
	for _, d := range ds {
		tp, err := findTopic(ctx, db.Reader, d.Topic)
		if err == nil && d.Group != "" {
			_, err = groupID(ctx, db.Reader, tp, d.Group)
		}
		if err == nil {
			err = t.checkPartitions(tp)
		}
		if err != nil && !errors.Is(err, errMissing) && !transport.Refused(err) {
			return db.Explain(err)
		}
		missing = append(missing, err)
	}
	if err := errors.Join(missing...); err != nil {
		return transport.Refuse(fmt.Errorf("database %s: topology: verify: %w", db.Path, err))
	}
	return nil
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *stdsql.Row
}

func findTopic(ctx context.Context, q querier, name string) (topic, error) {
	tp := topic{name: name}
	err := q.QueryRowContext(ctx, "SELECT id, uid, partitions FROM leat_topics WHERE name = ?", name).Scan(&tp.id, &tp.uid, &tp.partitions)
	if errors.Is(err, stdsql.ErrNoRows) {
		return tp, fmt.Errorf("topic %q %w", name, errMissing)
	}
	if err != nil {
		return tp, fmt.Errorf("topic %q: %w", name, err)
	}
	return tp, nil
}

func groupID(ctx context.Context, q querier, tp topic, name string) (int64, error) {
	var id int64
	err := q.QueryRowContext(ctx, "SELECT id FROM leat_groups WHERE topic_id = ? AND name = ?", tp.id, name).Scan(&id)
	if errors.Is(err, stdsql.ErrNoRows) {
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
	tp, err := findTopic(ctx, db.Reader, topicName)
	if err != nil {
		return depth, db.Explain(err)
	}
	gid, err := groupID(ctx, db.Reader, tp, group)
	if err != nil {
		return depth, db.Explain(err)
	}
	var waiting int64 // with a row in leat_deliveries, as heads whose time has not come
	var oldest stdsql.NullInt64
	err = db.Reader.QueryRowContext(ctx, `
SELECT (SELECT count(*) FROM leat_deliveries WHERE topic_id = ?1 AND group_id = ?2),
       (SELECT count(*) FROM leat_delayed WHERE topic_id = ?1 AND group_id = ?2),
       (SELECT count(*) FROM leat_attempts a JOIN leat_deliveries d USING (topic_id, group_id, part, id)
         WHERE a.topic_id = ?1 AND a.group_id = ?2 AND a.available_at > `+t.d.clock()+`),
       (SELECT min(m.published_at) FROM leat_partitions p JOIN leat_messages m ON m.id = coalesce(
           (SELECT min(d.id) FROM leat_deliveries d WHERE d.topic_id = p.topic_id AND d.group_id = p.group_id AND d.part = p.part),
           (SELECT min(d.id) FROM leat_delayed d WHERE d.topic_id = p.topic_id AND d.group_id = p.group_id AND d.part = p.part))
         WHERE p.topic_id = ?1 AND p.group_id = ?2)`, tp.id, gid).Scan(&depth.Ready, &depth.Delayed, &waiting, &oldest)
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
