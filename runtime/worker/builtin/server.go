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

func openPostgres(_ worker.Env, c config.Component) (transport.Transport, error) {
	o, err := serverOptions(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenPostgres(o)
}

func openMySQL(_ worker.Env, c config.Component) (transport.Transport, error) {
	o, err := serverOptions(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenMySQL(o)
}

// serverOptions reads postgres://…, or {postgres: {url: postgres://…}}, and mysql alike.
func serverOptions(c config.Component) (sql.ServerOptions, error) {
	var o sql.ServerOptions
	if !c.URL.IsZero() {
		o.URL = c.URL.Reveal()
		return o, nil
	}
	if err := c.Decode(&o); err != nil {
		return o, err
	}
	if t := o.TLS; t != nil {
		for _, file := range []*string{&t.CA, &t.Cert, &t.Key} {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(c.Dir, *file)
			}
		}
	}
	return o, nil
}

func serverStore(dialect sqldb.Dialect) func(worker.Env, config.Component) (worker.OpenStore, error) {
	return func(env worker.Env, c config.Component) (worker.OpenStore, error) {
		o, err := serverOptions(c)
		if err != nil {
			return nil, err
		}
		to := sqldb.Options{Dialect: dialect, Server: o.Server}
		return sqlStore(env, to), to.Validate()
	}
}

// sqlStore keeps dedup keys in a database: that of the broker, or one of its
// own. Where it is the broker's, both share its connections.
func sqlStore(env worker.Env, o sqldb.Options) worker.OpenStore {
	o.Verify = env.Topology != transport.TopologyDeclare
	return func(ctx context.Context) (middleware.DedupStore, func() error, error) {
		db, err := sqldb.Open(ctx, o)
		if sqldb.Unusable(err) {
			err = transport.Refuse(err)
		}
		if err != nil {
			return nil, nil, err
		}
		s := dedupsql.New(db, env.Instance)
		return s, func() error { return errors.Join(s.Close(), db.Close()) }, nil
	}
}
