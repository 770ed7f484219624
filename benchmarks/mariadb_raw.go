package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime/transport"

	"github.com/leat-io/leat/benchmarks/harness"
)

// The same two tables that Leat has, as somebody would use them without it.
var mariadbTables = []string{
	`CREATE TABLE m (id BIGINT AUTO_INCREMENT PRIMARY KEY, topic_id INT NOT NULL, part SMALLINT NOT NULL, gen BIGINT NOT NULL DEFAULT 0, uuid MEDIUMBLOB, msg_key MEDIUMBLOB, headers LONGBLOB, published_at BIGINT NOT NULL, payload LONGBLOB)`,
	`CREATE TABLE d (topic_id INT, group_id INT, part SMALLINT, id BIGINT, PRIMARY KEY (topic_id, group_id, part, id))`,
}

const (
	mariadbInsertMessages   = `INSERT INTO m (topic_id, published_at, part, uuid, msg_key, payload) VALUES `
	mariadbInsertDeliveries = `INSERT INTO d VALUES `
	mariadbTake             = `SELECT d.part, d.id, uuid, msg_key, headers, published_at, payload FROM d JOIN m ON m.id = d.id
		WHERE d.topic_id = 1 AND d.group_id = 1 LIMIT 100 FOR UPDATE SKIP LOCKED`
	mariadbDropDeliveries = `DELETE FROM d WHERE topic_id = 1 AND group_id = 1 AND (part, id) IN (`
	mariadbDropMessages   = `DELETE FROM m WHERE id IN (`
)

// inRawMariaDB runs fn with those tables.
func inRawMariaDB(fn func(ctx context.Context, db *sql.DB) error) error {
	return inDatabase(mariadbBroker, func(rawURL string) error {
		u, err := url.Parse(rawURL)
		if err != nil {
			return err
		}
		db, err := openDatabase(u)
		if err != nil {
			return err
		}
		db.SetMaxIdleConns(publishers)
		ctx := background()
		for _, table := range mariadbTables {
			if _, err := db.ExecContext(ctx, table); err != nil {
				return errors.Join(err, db.Close())
			}
		}
		return errors.Join(fn(ctx, db), db.Close())
	})
}

func inTransaction(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// insertMariaDB publishes messages in one transaction. The ids of one INSERT
// follow each other.
func insertMariaDB(ctx context.Context, db *sql.DB, msgs []*message.Message) error {
	var messages, deliveries []any
	for i, msg := range msgs {
		messages = append(messages, i%8, msg.UUID, msg.Metadata[transport.KeyHeader], []byte(msg.Payload))
	}
	return inTransaction(ctx, db, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, list(mariadbInsertMessages, len(msgs), "(1,0,?,?,?,?)", ""), messages...)
		if err != nil {
			return err
		}
		first, err := res.LastInsertId()
		if err != nil {
			return err
		}
		for i := range msgs {
			deliveries = append(deliveries, i%8, first+int64(i))
		}
		_, err = tx.ExecContext(ctx, list(mariadbInsertDeliveries, len(msgs), "(1,1,?,?)", ""), deliveries...)
		return err
	})
}

// list is a statement with n placeholders in it.
func list(begin string, n int, mark, end string) string {
	return begin + strings.TrimSuffix(strings.Repeat(mark+",", n), ",") + end
}

// claimMariaDB takes up to 100 messages and deletes them in the same
// transaction, which is how soon a claim can be over.
func claimMariaDB(ctx context.Context, db *sql.DB) (n int, err error) {
	err = inTransaction(ctx, db, func(tx *sql.Tx) error {
		var deliveries, messages []any
		rows, err := tx.QueryContext(ctx, mariadbTake)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err tells
		for rows.Next() {
			var part, id, at int64
			var uuid, key, headers, payload []byte
			if err := rows.Scan(&part, &id, &uuid, &key, &headers, &at, &payload); err != nil {
				return err
			}
			harness.Sink = payload
			deliveries, messages = append(deliveries, part, id), append(messages, id)
		}
		if n = len(messages); n == 0 || rows.Err() != nil {
			return rows.Err()
		}
		if _, err := tx.ExecContext(ctx, list(mariadbDropDeliveries, n, "(?,?)", ")"), deliveries...); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, list(mariadbDropMessages, n, "?", ")"), messages...)
		return err
	})
	return n, err
}

// rawMariaDB drains with one goroutine.
func rawMariaDB(m *harness.Meter, n int) error {
	return inRawMariaDB(func(ctx context.Context, db *sql.DB) error {
		const batch = 1000
		for at := 0; at < twice*n; at += batch {
			if err := insertMariaDB(ctx, db, kibibytes(at, min(batch, twice*n-at))); err != nil {
				return err
			}
		}
		return drainRaw(newCount(m, n, twice), 1, func() (int, error) { return claimMariaDB(ctx, db) })
	})
}

func rawMariaDBPublish(goroutines, batch int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inRawMariaDB(func(ctx context.Context, db *sql.DB) error {
			return publishRaw(m, kibibytes(0, n), goroutines, batch, func(msgs []*message.Message) error { return insertMariaDB(ctx, db, msgs) })
		})
	}
}
