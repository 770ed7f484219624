package sqldb

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// prepareServer connects, and sees to the schema. Where it is up to date that
// takes no lock and no right but to read it.
func (s *shared) prepareServer(ctx context.Context, verifyOnly bool) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	var err error
	if verifyOnly {
		err = s.schema(s.writer).verify(ctx)
	} else {
		err = s.migrateServer(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	if s.remote == nil && s.target.dialect == Postgres && s.target.server.Pooler == "" {
		s.remote = s.listen(ctx)
	}
	return nil
}

// connect opens the pool if nobody has, and finds out what the tables' names
// begin with.
func (s *shared) connect(ctx context.Context) error {
	if s.tables != "" {
		return nil
	}
	if s.writer == nil {
		if err := s.target.connect(ctx, s); err != nil {
			return err
		}
	}
	if s.target.dialect == Postgres {
		return s.locate(ctx, s.writer)
	}
	s.tables = s.target.server.TablePrefix
	return s.writer.PingContext(ctx)
}

func (s *shared) schema(db *sql.DB) *schema {
	return &schema{db: db, names: s.names, database: s.target.name, version: s.version}
}

// locate finds PostgreSQL's schema.
func (s *shared) locate(ctx context.Context, db *sql.DB) error {
	var schema, quoted sql.NullString
	err := db.QueryRowContext(ctx, "SELECT s, quote_ident(s) FROM (SELECT coalesce(nullif($1, ''), current_schema()::text) AS s) x", s.target.server.Schema).Scan(&schema, &quoted)
	if err != nil {
		return err
	}
	if !schema.Valid {
		return s.unusable("has no schema in the search path of user " + s.target.user + " that this user may use: grant it USAGE on one, or name another by the key schema")
	}
	if quoted != schema {
		return s.unusable(fmt.Sprintf("schema %s needs quotes wherever it is named: use another by the key schema", quoted.String))
	}
	s.tables = schema.String + "." + s.target.server.TablePrefix
	return nil
}

// version is the schema's, 0 where there is none. Where it may not be read, the
// error names all rights that are missing.
func (s *shared) version(ctx context.Context, db *sql.DB, table string) (int64, error) {
	var v sql.NullInt64
	err := db.QueryRowContext(ctx, "SELECT max(version_id) FROM "+table+" WHERE is_applied").Scan(&v)
	switch {
	case missingTable(err):
		return 0, nil
	case deniedRight(err):
		return 0, s.lacks(ctx, err)
	}
	return v.Int64, err
}

// migrateServer applies what is missing, under a lock of this schema and prefix.
func (s *shared) migrateServer(ctx context.Context) (err error) {
	pending, err := s.schema(s.writer).pending(ctx)
	if err != nil || len(pending) == 0 {
		return err
	}
	db := s.migrator()
	defer closeDB(db, &err)
	locked := s.lockMySQL
	if s.target.dialect == Postgres {
		locked = s.lockPostgres
	}
	err = locked(ctx, db, func() error { return s.schema(db).up(ctx) })
	if deniedRight(err) && !Unusable(err) {
		err = &UnusableError{Database: s.target.name, Problem: s.adviceRight() + ", or have `worker migrate` run by a user who may, and use topology: verify", Err: err}
	}
	return err
}

// lockName is one for each set of tables of a server.
func (s *shared) lockName(database string) [sha256.Size]byte {
	return sha256.Sum256([]byte("leat schema " + database + " " + s.tables))
}

// lockPostgres holds the lock by a transaction, not by a session, since a
// pooler may give each transaction another session. It ends with the connection.
func (s *shared) lockPostgres(ctx context.Context, db *sql.DB, fn func() error) error {
	sum := s.lockName("")                         // the lock is the database's alone
	key := int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits do
	return inTx(ctx, db, nil, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", key); err != nil {
			return fmt.Errorf("lock of the schema: %w", err)
		}
		if err := s.createSchema(ctx, db); err != nil {
			return err
		}
		return fn()
	})
}

// createSchema makes a schema that the options name and that is missing. To ask
// first takes fewer rights.
func (s *shared) createSchema(ctx context.Context, db *sql.DB) error {
	name := s.target.server.Schema
	if name == "" {
		return nil
	}
	var there bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", name).Scan(&there)
	if err == nil && !there {
		_, err = db.ExecContext(ctx, "CREATE SCHEMA "+name)
	}
	if err != nil {
		return fmt.Errorf("schema %s: %w", name, err)
	}
	return nil
}

// lockMySQL holds the lock by one connection, with which it ends. Such locks
// are the server's, so the name has the database's.
func (s *shared) lockMySQL(ctx context.Context, db *sql.DB, fn func() error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	sum := s.lockName(s.target.server.Database)
	name := "leat_" + hex.EncodeToString(sum[:16])
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", name).Scan(&got); err != nil {
			return fmt.Errorf("lock of the schema: %w", err)
		}
		if got.Int64 == 1 {
			break
		}
	}
	defer func() {
		if _, unlocking := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", name); err == nil {
			err = unlocking
		}
	}()
	return fn()
}
