package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"
)

const cantOpen = sqlite3.SQLITE_CANTOPEN

// migrate brings an SQLite schema up to date. goose has no lock for SQLite, and
// no transaction can be held around its own, nor around the switch to WAL: so
// the lock is one on a second SQLite file beside the database. The system drops
// it when its holder dies. The file stays, empty, since taking it away would
// let two processes hold "the" lock.
func migrate(ctx context.Context, writer *sql.DB, path string) (err error) {
	lockPath := path + ".lock"
	if err := create(lockPath); err != nil {
		return err
	}
	lock, err := sql.Open("sqlite", dsn(lockPath, "exclusive", []string{"busy_timeout(200)", "journal_mode(MEMORY)"}))
	if err != nil {
		return fmt.Errorf("lock %s: %w", lockPath, err)
	}
	defer closeDB(lock, &err)
	lock.SetMaxOpenConns(1)
	m := fileSchema(writer, path)
	return retryBusy(ctx, func() error {
		return inTx(ctx, lock, nil, func(*sql.Tx) error {
			if err := retryBusy(ctx, func() error { return useWAL(ctx, writer) }); err != nil {
				return err
			}
			return retryBusy(ctx, func() error { return m.up(ctx) })
		})
	})
}

func useWAL(ctx context.Context, writer *sql.DB) error {
	var mode string
	if err := writer.QueryRowContext(ctx, "PRAGMA journal_mode(WAL)").Scan(&mode); err != nil {
		return fmt.Errorf("journal mode: %w", err)
	}
	if mode != "wal" {
		return fmt.Errorf("journal mode is %q, and the file system gives no shared memory for WAL", mode)
	}
	return nil
}

// verify checks without changing anything.
func verify(ctx context.Context, writer *sql.DB, path string) error {
	m := fileSchema(writer, path)
	return retryBusy(ctx, func() error { return m.verify(ctx) })
}

func fileSchema(db *sql.DB, path string) *schema {
	return &schema{db: db, names: &names{dialect: SQLite, tables: prefix}, database: path, version: fileVersion}
}

// fileVersion is the version of an SQLite schema, 0 where there is none.
func fileVersion(ctx context.Context, db *sql.DB, table string) (int64, error) {
	var there int
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", table).Scan(&there)
	if err != nil || there == 0 {
		return 0, err
	}
	var v sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT max(version_id) FROM "+table+" WHERE is_applied").Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return v.Int64, err
}
