package builtin

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/dedupsql"
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

// sqliteStore keeps dedup keys in the file that c names: that of the broker,
// or one of its own. Where it is the broker's, both share its connections.
func sqliteStore(env worker.Env, c config.Component) (worker.OpenStore, error) {
	o, err := sqliteOptions(c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (middleware.DedupStore, func() error, error) {
		db, err := sqldb.Open(ctx, sqldb.Options{
			Path: o.Path, Synchronous: o.Synchronous, Verify: env.Topology != transport.TopologyDeclare,
		})
		if sqldb.Unusable(err) {
			err = transport.Refuse(err)
		}
		if err != nil {
			return nil, nil, err
		}
		s := dedupsql.New(db, env.Instance)
		return s, func() error { return errors.Join(s.Close(), db.Close()) }, nil
	}, nil
}
