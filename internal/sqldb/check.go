package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string // of its file
	SQL     string // what it runs
}

// Pending lists the migrations that [Open] would apply. It changes nothing:
// for a file that is not there, that is all of them.
func Pending(ctx context.Context, o Options) ([]Migration, error) {
	var pending []Migration
	err := inspect(ctx, o, func(db *sql.DB, file string) error {
		p, err := provider(db)
		if err != nil {
			return err
		}
		have := int64(0)
		if file != "" {
			if err := newer(ctx, p, db, file); err != nil {
				return err
			}
			if have, err = version(ctx, db); err != nil {
				return err
			}
		}
		for _, source := range p.ListSources() {
			if source.Version <= have {
				continue
			}
			text, err := migrations.ReadFile(path.Join("migrations/sqlite", path.Base(source.Path)))
			if err != nil {
				return fmt.Errorf("migration %s: %w", source.Path, err)
			}
			_, up, _ := strings.Cut(string(text), "-- +goose Up\n")
			up, _, _ = strings.Cut(up, "-- +goose Down")
			pending = append(pending, Migration{source.Version, path.Base(source.Path), strings.TrimSpace(up)})
		}
		return nil
	})
	return pending, err
}

// maxComplaints bounds what Check has to say.
const maxComplaints = 20

// Check has SQLite look through the whole file, and says what is wrong with
// it: nothing, for one that is not there. It changes nothing, and others can
// use the file meanwhile.
func Check(ctx context.Context, o Options) ([]string, error) {
	var complaints []string
	err := inspect(ctx, o, func(db *sql.DB, file string) error {
		if file == "" {
			return nil
		}
		rows, err := db.QueryContext(ctx, fmt.Sprintf("PRAGMA integrity_check(%d)", maxComplaints))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var complaint string
			if err := rows.Scan(&complaint); err != nil {
				return err
			}
			complaints = append(complaints, complaint)
		}
		return rows.Err()
	})
	if len(complaints) == 1 && complaints[0] == "ok" {
		complaints = nil
	}
	return complaints, err
}

// inspect gives fn the file, opened so that nothing in it changes, and its
// path: an empty one, and an empty database, where there is no file.
func inspect(ctx context.Context, o Options, fn func(db *sql.DB, file string) error) (err error) {
	file, err := o.check()
	if err != nil {
		return err
	}
	name := dsn(file, "deferred", []string{"busy_timeout(200)", "query_only(1)"})
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		file, name = "", ":memory:"
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return fmt.Errorf("database %s: %w", o.Path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	return explain(file, retryBusy(ctx, func() error { return fn(db, file) }))
}
