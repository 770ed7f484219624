package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

// Publish publishes within a transaction of your own, in the database that has
// Leat's tables: the messages are there if and only if that commits, whenever
// it does. tx is an [*stdsql.Tx] of SQLite, PostgreSQL, MariaDB or MySQL, or a
// [pgx.Tx].
//
// The topic must be there: a worker that consumes or publishes it makes it.
// After an error roll the transaction back. One that began long ago, with an
// isolation of REPEATABLE READ or higher, may get an error to try it again
// where a group came since. On SQLite one that has read before gets
// SQLITE_BUSY where another writes: begin it with _txlock=immediate. While a transaction is open nobody waits for it,
// but for what is older than a group that comes meanwhile.
//
// The order of the messages of one transaction is kept; between transactions it
// is that of their commits.
func Publish(ctx context.Context, tx any, topicName string, msgs ...*message.Message) error {
	return Tables{}.Publish(ctx, tx, topicName, msgs...)
}

// Tables says where Leat's tables are, if not where [Publish] looks for them.
type Tables struct {
	Schema string // on PostgreSQL; default: the first of the search path
	Prefix string // default: leat_
}

// Publish is that of the package.
func (t Tables) Publish(ctx context.Context, tx any, topicName string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := transport.CheckName("topic", topicName); err != nil {
		return err
	}
	in, err := t.within(ctx, tx)
	if err == nil {
		err = in.publish(ctx, topicName, msgs)
	}
	if err != nil {
		return fmt.Errorf("publish to %q in a transaction: %w", topicName, err)
	}
	return nil
}

// conn is what a transaction is used for.
type conn interface {
	exec(ctx context.Context, query string, args ...any) error
	rows(ctx context.Context, query string, args []any, each func(scan func(...any) error) error) error
}

// within finds out what tx is a transaction of.
func (t Tables) within(ctx context.Context, tx any) (*inside, error) {
	in := &inside{}
	switch tx := tx.(type) {
	case pgx.Tx:
		in.conn, in.dialect = pgxConn{tx}, sqldb.Postgres
	case *stdsql.Tx:
		in.conn = stdConn{tx}
		if err := in.recognise(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%T is neither an *sql.Tx nor a pgx.Tx", tx)
	}
	schema := t.Schema
	if in.dialect == sqldb.Postgres && schema == "" {
		if err := in.first(ctx, "SELECT current_schema()", nil, &schema); err != nil {
			return nil, err
		}
	}
	var err error
	in.tables, err = sqldb.TablesOf(in.dialect, schema, t.Prefix)
	return in, err
}

// recognise asks what every server answers, whose transactions an error would
// end, and SQLite does not know.
func (in *inside) recognise(ctx context.Context) error {
	var version string
	err := in.first(ctx, "SELECT version()", nil, &version)
	switch {
	case err == nil && strings.Contains(version, "PostgreSQL"):
		in.dialect = sqldb.Postgres
	case err == nil:
		in.dialect = sqldb.MySQL
	case in.first(ctx, "SELECT sqlite_version()", nil, &version) == nil:
		in.dialect = sqldb.SQLite
	default:
		return err
	}
	return nil
}

// inside is a transaction, and how it is spoken to.
type inside struct {
	conn

	dialect sqldb.Dialect
	tables  *sqldb.Tables
}

// first scans the one row of a statement, or none.
func (in *inside) first(ctx context.Context, query string, args []any, dest ...any) error {
	return in.rows(ctx, query, args, func(scan func(...any) error) error { return scan(dest...) })
}

func (in *inside) publish(ctx context.Context, topicName string, msgs []*message.Message) error {
	a := audience{topic: topic{name: topicName}}
	find := "SELECT id, uid, partitions"
	if in.dialect.Server() {
		find += ", gen"
	} else {
		find += ", 0"
		// Takes the write lock. SQLite waits for it in a transaction that has not read yet alone.
		if err := in.exec(ctx, in.tables.SQL("DELETE FROM leat_topics WHERE 0")); err != nil {
			return err
		}
	}
	find = in.tables.SQL(find + " FROM leat_topics WHERE name = ?")
	for range staleTries {
		a.id = 0
		if err := in.first(ctx, find, []any{topicName}, &a.id, &a.uid, &a.partitions, &a.gen); err != nil {
			return err
		}
		if a.id == 0 {
			return fmt.Errorf("topic %q %w: start a worker that consumes it first, or publish to it by one", topicName, errMissing)
		}
		current, err := in.enter(ctx, &a)
		if err != nil {
			return err
		}
		if current {
			return in.insert(ctx, a, msgs)
		}
	}
	return errStale
}

// enter takes a share of the gate, and tells whether the generation is current.
// After it the groups are known.
func (in *inside) enter(ctx context.Context, a *audience) (bool, error) {
	known := "SELECT id FROM leat_groups WHERE topic_id = ?"
	args := []any{a.id}
	if in.dialect.Server() {
		known, args = known+" AND gen <= ?", append(args, a.gen)
	}
	switch in.dialect {
	case sqldb.Postgres:
		var isolation string
		if err := in.first(ctx, "SELECT current_setting('transaction_isolation') FROM (SELECT pg_try_advisory_xact_lock_shared($1)) AS gate", []any{gateKey(a.topic, a.gen)}, &isolation); err != nil {
			return false, err
		}
		check := "SELECT gen FROM leat_topics WHERE id = ?"
		args := []any{a.id}
		if isolation != "read committed" { // what it sees may be old: this fails once the gate is passed
			check, args = "SELECT gen FROM leat_gates WHERE topic_id = ? AND gen = ? FOR KEY SHARE", append(args, a.gen)
		}
		gen := int64(-1)
		if err := in.first(ctx, in.tables.SQL(check), args, &gen); err != nil || gen != a.gen {
			return false, err
		}
	case sqldb.MySQL:
		return in.enterMySQL(ctx, a)
	case sqldb.SQLite, "":
	}
	return true, in.groups(ctx, a, known, args)
}

func (in *inside) groups(ctx context.Context, a *audience, query string, args []any) error {
	a.groups = nil
	return in.rows(ctx, in.tables.SQL(query), args, func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		a.groups = append(a.groups, id)
		return err
	})
}

// enterMySQL cannot know the isolation, and what a transaction sees may be old.
// While the gate of a generation is there and ours to share, those who came
// later find what we publish; once it has gone, what is current must be locked
// to be seen.
func (in *inside) enterMySQL(ctx context.Context, a *audience) (bool, error) {
	gate := in.tables.SQL("SELECT gen FROM leat_gates WHERE topic_id = ? AND gen = ?" + sharedFreeMySQL)
	at := int64(-1)
	if err := in.first(ctx, gate, []any{a.id, a.gen}, &at); err != nil {
		return false, err
	}
	if at == a.gen {
		return true, in.groups(ctx, a, "SELECT id FROM leat_groups WHERE topic_id = ? AND gen <= ?", []any{a.id, a.gen})
	}
	err := in.first(ctx, in.tables.SQL("SELECT gen FROM leat_topics WHERE id = ? LOCK IN SHARE MODE"), []any{a.id}, &a.gen)
	if err != nil {
		return false, err
	}
	return true, in.groups(ctx, a, "SELECT id FROM leat_groups WHERE topic_id = ? AND gen <= ? LOCK IN SHARE MODE", []any{a.id, a.gen})
}

// These bound one INSERT, which MySQL takes as one packet.
const (
	txRows  = 100
	txBytes = 1 << 20 // unless one message has more
)

// fitting is how many of the first messages go into one INSERT.
func fitting(msgs []*message.Message) int {
	size := 0
	for i, m := range msgs[:min(len(msgs), txRows)] {
		size += len(m.UUID) + len(m.Payload)
		for k, v := range m.Metadata {
			size += len(k) + len(v)
		}
		if i > 0 && size > txBytes {
			return i
		}
	}
	return min(len(msgs), txRows)
}

func (in *inside) insert(ctx context.Context, a audience, msgs []*message.Message) error {
	spread := newSpread()
	for len(msgs) > 0 {
		some := msgs[:fitting(msgs)]
		msgs = msgs[len(some):]
		parts := make([]int64, len(some))
		for i, m := range some {
			parts[i] = spread.partition(m.Metadata[transport.KeyHeader], a.partitions)
		}
		ids, err := in.insertMessages(ctx, a, parts, some)
		if err != nil {
			return err
		}
		if len(a.groups) == 0 {
			continue
		}
		b := []byte("INSERT INTO " + in.tables.Table("leat_deliveries") + " (topic_id, group_id, part, id) VALUES ")
		for i, id := range ids {
			for j, group := range a.groups {
				if i+j > 0 {
					b = append(b, ',')
				}
				b = append(appendNumbers(append(b, '('), a.id, group, parts[i], id), ')')
			}
		}
		if err := in.exec(ctx, string(b)); err != nil {
			return err
		}
	}
	if query, args := in.tables.NotifySQL(a.name); query != "" {
		var ignored any
		return in.first(ctx, query, args, &ignored)
	}
	return nil
}

// insertMessages gives the ids.
func (in *inside) insertMessages(ctx context.Context, a audience, parts []int64, msgs []*message.Message) ([]int64, error) {
	columns, row := `topic_id, part, uuid, "key", headers, payload`, "(?, ?, ?, ?, ?, ?)"
	if in.dialect.Server() {
		columns, row = columns+", gen", "(?, ?, ?, ?, ?, ?, ?)"
	}
	query := "INSERT INTO leat_messages (" + columns + ") VALUES " + strings.Repeat(row+", ", len(msgs)-1) + row
	if in.dialect != sqldb.MySQL {
		query += " RETURNING id"
	}
	var args []any
	for i, m := range msgs {
		key := m.Metadata[transport.KeyHeader]
		headers := encodeHeaders(m.Metadata, key)
		if in.dialect.Server() {
			args = append(args, a.id, parts[i], bytesOf(m.UUID), bytesOf(key), headers, []byte(m.Payload), a.gen)
		} else {
			args = append(args, a.id, parts[i], exact(m.UUID), exact(key), textOf(headers), payload(m.Payload))
		}
	}
	var ids []int64
	err := in.rows(ctx, in.tables.SQL(query), args, func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil || in.dialect != sqldb.MySQL {
		return ids, err
	}
	var first, step int64
	if err := in.first(ctx, "SELECT LAST_INSERT_ID(), @@auto_increment_increment", nil, &first, &step); err != nil {
		return nil, err
	}
	for i := range msgs {
		ids = append(ids, first+int64(i)*step)
	}
	return ids, nil
}

// newSpread gives messages without a key a partition of their own each.
func newSpread() *spread {
	first := uuid.New()
	return &spread{uint32(first[0])}
}

type stdConn struct{ tx *stdsql.Tx }

func (c stdConn) exec(ctx context.Context, query string, args ...any) error {
	_, err := c.tx.ExecContext(ctx, query, args...)
	return err
}

func (c stdConn) rows(ctx context.Context, query string, args []any, each func(func(...any) error) error) (err error) {
	rows, err := c.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

type pgxConn struct{ tx pgx.Tx }

func (c pgxConn) exec(ctx context.Context, query string, args ...any) error {
	_, err := c.tx.Exec(ctx, query, args...)
	return err
}

func (c pgxConn) rows(ctx context.Context, query string, args []any, each func(func(...any) error) error) error {
	rows, err := c.tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
