package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string // of its file
	SQL     string // what it runs
}

// Pending lists the migrations that [Open] would apply. It changes nothing:
// for a file that is not there, and a schema that is not, that is all of them.
func Pending(ctx context.Context, o Options) (pending []Migration, err error) {
	if o.Dialect.Server() {
		err = inspectServer(ctx, o, func(s *shared) error {
			pending, err = s.schema(s.writer).pending(ctx)
			return err
		})
		return pending, err
	}
	err = inspectFile(ctx, o, func(db *sql.DB, file string) error {
		m := fileSchema(db, file)
		if file == "" {
			m.version = func(context.Context, *sql.DB, string) (int64, error) { return 0, nil }
		}
		pending, err = m.pending(ctx)
		return err
	})
	return pending, err
}

// maxComplaints bounds what SQLite has to say.
const maxComplaints = 20

// Check looks through the database, and says what is wrong with it: nothing,
// for one that is not there. It changes nothing, and others can use the database
// meanwhile. PostgreSQL has no word for its rows: there it is tables, columns and
// rights alone.
func Check(ctx context.Context, o Options) (complaints []string, err error) {
	if o.Dialect.Server() {
		err = inspectServer(ctx, o, func(s *shared) error {
			complaints, err = s.complaints(ctx)
			return err
		})
		return complaints, err
	}
	err = inspectFile(ctx, o, func(db *sql.DB, file string) error {
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

// complaints are what a server has to say.
func (s *shared) complaints(ctx context.Context) ([]string, error) {
	have, err := s.version(ctx, s.writer, s.Table(schemaTable))
	if err != nil || have == 0 {
		return nil, err
	}
	complaints, err := s.missing(ctx)
	if err != nil || complaints != nil || s.target.dialect == Postgres {
		return complaints, err
	}
	all, err := tables(s.target.dialect)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		said, err := s.checkTable(ctx, t.name)
		if err != nil {
			return nil, err
		}
		complaints = append(complaints, said...)
	}
	return complaints, nil
}

// checkTable has MySQL look through a table.
func (s *shared) checkTable(ctx context.Context, name string) (complaints []string, err error) {
	db := s.migrator() // it may take its time
	defer closeDB(db, &err)
	rows, err := db.QueryContext(ctx, "CHECK TABLE "+s.Table(name))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, op, kind, text string
		if err := rows.Scan(&table, &op, &kind, &text); err != nil {
			return nil, err
		}
		if kind == "error" || kind == "warning" {
			complaints = append(complaints, table+": "+text)
		}
	}
	return complaints, rows.Err()
}

// inspectServer gives fn a server that is connected to, whatever its schema is.
func inspectServer(ctx context.Context, o Options, fn func(*shared) error) error {
	t, err := o.target()
	if err != nil {
		return err
	}
	s := databases.acquire(t)
	err = s.opened(ctx, func() error {
		if err := s.connect(ctx); err != nil {
			return err
		}
		return fn(s)
	})
	return errors.Join(s.explain(err), databases.drop(s))
}

// inspectFile gives fn the file, opened so that nothing in it changes, and its
// path: an empty one, and an empty database, where there is no file.
func inspectFile(ctx context.Context, o Options, fn func(db *sql.DB, file string) error) (err error) {
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
