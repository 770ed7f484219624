package sqldb

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/sqlite/*.sql
var migrations embed.FS

const (
	schemaTable = "leat_schema"
	cantOpen    = sqlite3.SQLITE_CANTOPEN
)

// migrate brings the schema up to date. goose has no lock for SQLite, and no
// transaction can be held around its own, nor around the switch to WAL: so the
// lock is one on a second SQLite file beside the database. The system drops it
// when its holder dies. The file stays, empty, since taking it away would
// let two processes hold "the" lock.
func migrate(ctx context.Context, writer *sql.DB, path string) error {
	lockPath := path + ".lock"
	if err := create(lockPath); err != nil {
		return err
	}
	lock, err := sql.Open("sqlite", dsn(lockPath, "exclusive", []string{"busy_timeout(200)", "journal_mode(MEMORY)"}))
	if err != nil {
		return fmt.Errorf("lock %s: %w", lockPath, err)
	}
	defer lock.Close()
	lock.SetMaxOpenConns(1)
	err = retryBusy(ctx, func() error {
		return inTx(ctx, lock, func(*sql.Tx) error {
			if err := retryBusy(ctx, func() error { return useWAL(ctx, writer) }); err != nil {
				return err
			}
			return retryBusy(ctx, func() error { return up(ctx, writer, path) })
		})
	})
	return err
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

func up(ctx context.Context, writer *sql.DB, path string) error {
	p, err := provider(writer)
	if err != nil {
		return err
	}
	if err := newer(ctx, p, writer, path); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// verify checks without changing anything.
func verify(ctx context.Context, writer *sql.DB, path string) error {
	p, err := provider(writer)
	if err != nil {
		return err
	}
	return retryBusy(ctx, func() error {
		if err := newer(ctx, p, writer, path); err != nil {
			return err
		}
		have, err := version(ctx, writer)
		if want := latest(p); err == nil && have < want {
			err = &UnusableError{Path: path, Problem: fmt.Sprintf("has schema version %d, this program needs %d, and topology: verify changes nothing: run once with topology: declare", have, want)}
		}
		return err
	})
}

func provider(writer *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, writer, files,
		goose.WithTableName(schemaTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

// newer refuses a schema from the future.
func newer(ctx context.Context, p *goose.Provider, writer *sql.DB, path string) error {
	have, err := version(ctx, writer)
	if err != nil {
		return err
	}
	if want := latest(p); have > want {
		return &UnusableError{Path: path, Problem: fmt.Sprintf("has schema version %d, newer than the %d this program knows: run a newer program", have, want)}
	}
	return nil
}

func latest(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

// version is the schema's, 0 where there is none.
func version(ctx context.Context, writer *sql.DB) (int64, error) {
	var there int
	err := writer.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", schemaTable).Scan(&there)
	if err != nil || there == 0 {
		return 0, err
	}
	var v sql.NullInt64
	err = writer.QueryRowContext(ctx, "SELECT max(version_id) FROM "+schemaTable+" WHERE is_applied").Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return v.Int64, err
}
