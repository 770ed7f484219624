package builtin

import (
	"errors"
	"path/filepath"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/worker"
)

func openSQLite(_ worker.Env, c config.Component) (transport.Transport, error) {
	o, err := sqliteOptions(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenSQLite(o)
}

// sqliteOptions reads sqlite://PATH, or {sqlite: {path: …}}.
func sqliteOptions(c config.Component) (sql.Options, error) {
	var o sql.Options
	var err error
	if c.URL.IsZero() {
		err = c.Decode(&o)
	} else {
		o, err = sql.ParseSQLite(c.URL.Reveal())
	}
	switch {
	case err != nil:
		return o, err
	case o.Path == "":
		return o, errors.New("no file is named; write sqlite://worker.db")
	case !filepath.IsAbs(o.Path):
		o.Path = filepath.Join(c.Dir, o.Path)
	}
	return o, nil
}

func sqliteStore(env worker.Env, c config.Component) (worker.OpenStore, error) {
	o, err := sqliteOptions(c)
	return sqlStore(env, sqldb.Options{Path: o.Path, Synchronous: o.Synchronous}), err
}
