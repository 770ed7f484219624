package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Values of [Options.Synchronous].
const (
	SyncNormal = "normal" // a power cut may undo the last commits; a crash of the process does not
	SyncFull   = "full"   // what is committed survives a power cut
)

// Options says which database to open, and how.
type Options struct {
	// Dialect of the database. Default: SQLite.
	Dialect Dialect
	// Path of the SQLite file. It is created, readable by its owner alone.
	Path string
	// Synchronous, of SQLite, is SyncNormal or SyncFull. Default: SyncFull.
	Synchronous string
	// Server of the other dialects.
	Server Server
	// Verify creates and migrates nothing: what is missing, or older than
	// this program needs, is an [UnusableError] that says so. It takes no right
	// but to read and write the tables.
	Verify bool
}

// Name is what errors call the database: a path, or a URL without password.
func (o Options) Name() string {
	if o.Dialect.Server() {
		return o.Server.String()
	}
	return o.Path
}

// Validate looks at the options alone, and connects to nothing.
func (o Options) Validate() error {
	_, err := o.target()
	return err
}

// target is a database that options name.
type target struct {
	key     string // equal for equal databases, opened in the same way
	name    string
	dialect Dialect

	path        string // of SQLite
	synchronous string

	server  Server // complete
	user    string
	connect func(context.Context, *shared) error
}

func (o Options) target() (*target, error) {
	switch o.Dialect {
	case SQLite, "":
		path, err := o.check()
		return &target{key: path + "|" + o.Synchronous, name: path, dialect: SQLite, path: path, synchronous: o.Synchronous}, err
	case Postgres, MySQL:
	default:
		return nil, fmt.Errorf("database dialect %q: want %s, %s or %s", o.Dialect, SQLite, Postgres, MySQL)
	}
	t := &target{name: o.Server.String(), dialect: o.Dialect, server: o.Server}
	refused := func(err error) (*target, error) {
		return nil, &UnusableError{Database: t.name, Problem: err.Error()}
	}
	u, err := t.server.complete(o.Dialect)
	if err != nil {
		return refused(err)
	}
	if o.Dialect == Postgres {
		cfg, err := t.server.postgresConfig(u)
		if err != nil {
			return refused(err)
		}
		t.user = cfg.ConnConfig.User
		t.connect = func(ctx context.Context, s *shared) error { return s.connectPostgres(ctx, cfg) }
	} else {
		cfg, err := t.server.mysqlConfig(u)
		if err != nil {
			return refused(err)
		}
		t.user = cfg.User
		t.connect = func(_ context.Context, s *shared) error { return s.connectMySQL(cfg, t.server) }
	}
	c := t.server
	c.URL, c.TLS = "", nil
	t.key = strings.Join([]string{string(o.Dialect), u.String(), fmt.Sprintf("%+v", plain(c)), fmt.Sprintf("%+v", o.Server.TLS)}, "|")
	return t, nil
}

// plain is a Server that prints all it has.
type plain Server

// close closes a database that was only for one thing, and keeps the first error.
func closeDB(db *sql.DB, err *error) {
	if closing := db.Close(); *err == nil {
		*err = closing
	}
}
