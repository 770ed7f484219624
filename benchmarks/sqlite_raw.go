package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime/transport"

	"github.com/leat-io/leat/benchmarks/harness"
)

// raw is the same two tables, as somebody would use them without Leat.
type raw struct {
	db    *stdsql.DB
	parts int
}

func openRaw(path, sync string, parts int) (*raw, error) {
	db, err := stdsql.Open("sqlite", path+"?_txlock=immediate&_pragma=page_size(8192)&_pragma=journal_mode(WAL)&_pragma=cache_size(-16000)&_pragma=synchronous("+sync+")")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(context.Background(), `
CREATE TABLE m (id INTEGER PRIMARY KEY AUTOINCREMENT, topic_id INTEGER, part INTEGER, uuid BLOB, key BLOB, headers BLOB, published_at INTEGER, payload BLOB);
CREATE TABLE d (topic_id INTEGER, group_id INTEGER, part INTEGER, id INTEGER, PRIMARY KEY (topic_id, group_id, part, id)) WITHOUT ROWID`)
	return &raw{db: db, parts: parts}, err
}

// publish inserts messages in one transaction.
func (r *raw) publish(insertMessage, insertDelivery *stdsql.Stmt, msgs []*message.Message) error {
	ctx := context.Background()
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	one, two := tx.StmtContext(ctx, insertMessage), tx.StmtContext(ctx, insertDelivery) //nolint:sqlclosecheck // with the transaction
	for i, msg := range msgs {
		part := i % r.parts
		res, err := one.ExecContext(ctx, part, msg.UUID, msg.Metadata[transport.KeyHeader], []byte(msg.Payload))
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		id, err := res.LastInsertId()
		if err == nil {
			_, err = two.ExecContext(ctx, part, id)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

func (r *raw) publishAll(msgs []*message.Message, batch int) error {
	ctx := context.Background()
	one, err := r.db.PrepareContext(ctx, "INSERT INTO m (topic_id, part, uuid, key, published_at, payload) VALUES (1, ?, ?, ?, 0, ?)")
	if err != nil {
		return err
	}
	defer func() { _ = one.Close() }() // before the database is
	two, err := r.db.PrepareContext(ctx, "INSERT INTO d VALUES (1, 1, ?, ?)")
	if err != nil {
		return err
	}
	defer func() { _ = two.Close() }() // likewise
	for at := 0; at < len(msgs); at += batch {
		if err := r.publish(one, two, msgs[at:min(len(msgs), at+batch)]); err != nil {
			return err
		}
	}
	return nil
}

// claim takes up to 100 messages and deletes them in the same transaction,
// which is how soon a claim can be over.
func (r *raw) claim() (int, error) {
	ctx := context.Background()
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	var ids []string
	err = each(ctx, tx, "DELETE FROM d WHERE (topic_id, group_id, part, id) IN (SELECT topic_id, group_id, part, id FROM d WHERE topic_id = 1 AND group_id = 1 LIMIT 100) RETURNING id", func(rows *stdsql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	if err == nil {
		err = each(ctx, tx, "DELETE FROM m WHERE id IN ("+strings.Join(ids, ",")+") RETURNING id, uuid, key, headers, published_at, payload", func(rows *stdsql.Rows) error {
			var id, at int64
			var uuid, key, headers, payload []byte
			err := rows.Scan(&id, &uuid, &key, &headers, &at, &payload)
			harness.Sink = payload
			return err
		})
	}
	if err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	return len(ids), tx.Commit()
}

func each(ctx context.Context, tx *stdsql.Tx, query string, fn func(*stdsql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func rawPublish(sync string, batch int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inFile(func(path string) error {
			r, err := openRaw(path, sync, 8)
			if err != nil {
				return err
			}
			msgs := kibibytes(0, n)
			m.Start()
			err = r.publishAll(msgs, batch)
			m.Stop()
			return errors.Join(err, r.db.Close())
		})
	}
}

func rawConsume(sync string, parts int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inFile(func(path string) error {
			r, err := openRaw(path, sync, parts)
			if err != nil {
				return err
			}
			if err := r.publishAll(kibibytes(0, n), 1000); err != nil {
				return err
			}
			m.Start()
			for left := n; left > 0 && err == nil; {
				var got int
				got, err = r.claim()
				left -= got
			}
			m.Stop()
			return errors.Join(err, r.db.Close())
		})
	}
}
