package conformance

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/dedupsql"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// database is a kind of server that the engine is tried on.
type database struct {
	broker  string // as scripts/brokers calls it
	kind    string // in a worker's file
	dialect sqldb.Dialect
	open    func(sql.ServerOptions) (*sql.Transport, error)
	admin   func(*url.URL) (driver, dsn string)
	create  string
	drop    string
	others  string // the connections beside one's own
	end     string // one of them
}

func TestConformance_postgres(t *testing.T) {
	t.Parallel()
	database{
		broker: "postgres", kind: "postgres", dialect: sqldb.Postgres, open: sql.OpenPostgres,
		admin:  func(u *url.URL) (string, string) { return "pgx", u.String() },
		create: "CREATE SCHEMA %s", drop: "DROP SCHEMA %s CASCADE",
		others: "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
		end:    "SELECT pg_terminate_backend(%d)",
	}.run(t)
}

func TestConformance_mariadb(t *testing.T) {
	t.Parallel()
	database{
		broker: "mariadb", kind: "mysql", dialect: sqldb.MySQL, open: sql.OpenMySQL,
		admin: func(u *url.URL) (string, string) {
			password, _ := u.User.Password()
			return "mysql", fmt.Sprintf("%s:%s@tcp(%s)/", u.User.Username(), password, u.Host)
		},
		create: "CREATE DATABASE %s", drop: "DROP DATABASE %s",
		others: "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user <> 'system user'",
		end:    "KILL %d",
	}.run(t)
}

// run has a server of its own where there may be one, that can be hurt.
func (d database) run(t *testing.T) {
	t.Helper()
	var own *brokertest.Brokers
	var at string
	if os.Getenv("LEAT_TEST_OWN") == "1" || os.Getenv("CI") != "" {
		own = brokertest.Start(t, d.broker)
		at = own.URL(d.broker)
	} else {
		at = brokertest.URL(t, d.broker)
	}
	const lease = 3 * time.Second
	report := Run(t, Options{
		Open:     func(tb TB) Broker { return d.fresh(tb, own, at, lease) },
		Worker:   "./internal/testworker",
		Takeover: lease + lease/2,
		Short:    true, // LEAT_SOAK has more
		Lacks: map[string]string{
			"Deny": "the suite of the transport has users of its own for that",
			"*":    "others use the server too",
		},
	})
	for name, why := range report.Skipped() {
		if own != nil {
			require.Equal(t, "I10_denied", name)
		}
		require.Regexp(t, "^no (Deny|.*: others use the server too)", why, name)
	}
}

// fresh is a schema or a database of its own on the server.
func (d database) fresh(tb TB, own *brokertest.Brokers, at string, lease time.Duration) Broker {
	tb.Helper()
	u, err := url.Parse(at)
	require.NoError(tb, err)
	name := fmt.Sprintf("c%016x", rand.Uint64())
	admin, err := stdsql.Open(d.admin(u))
	require.NoError(tb, err)
	do := func(statement string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also when the case has ended
		defer cancel()
		_, err := admin.ExecContext(ctx, statement)
		return err
	}
	require.NoError(tb, do(fmt.Sprintf(d.create, name)))
	tb.Cleanup(func() {
		require.NoError(tb, do(fmt.Sprintf(d.drop, name)))
		require.NoError(tb, admin.Close())
	})
	place := map[string]string{"postgres": "schema", "mysql": "database"}[d.kind]
	link := brokertest.NewProxy(tb, u.Host)
	through := *u
	through.Host = link.Addr()
	server := func(u url.URL) sql.Server {
		s := sql.Server{URL: u.String(), ConnectTimeout: 2 * time.Second, StatementTimeout: 2 * time.Second}
		if place == "schema" {
			s.Schema = name
		} else {
			s.Database = name
		}
		return s
	}
	var opened atomic.Int64
	b := Broker{
		Transport: func(tb TB) transport.Transport {
			s := server(through)
			s.PoolSize = 5 + int(opened.Add(1)) // no two share connections, as no two processes do
			tr, err := d.open(sql.ServerOptions{Server: s, Lease: lease})
			require.NoError(tb, err)
			return tr
		},
		Config: fmt.Sprintf("{%s: {url: %q, %s: %s, lease: %s}}", d.kind, at, place, name, lease),
		Link:   link,
		Store: func(tb TB) middleware.DedupStore {
			db, err := sqldb.Open(tb.Context(), sqldb.Options{Dialect: d.dialect, Server: server(*u)})
			require.NoError(tb, err)
			s := dedupsql.New(db, transport.Instance{})
			tb.Cleanup(func() {
				require.NoError(tb, s.Close())
				require.NoError(tb, db.Close())
			})
			return s
		},
	}
	if own == nil {
		return b
	}
	b.Restart = func(TB) { own.Restart(d.broker) }
	b.Crash = func(TB) { own.Kill(d.broker); own.Up(d.broker) }
	b.Freeze = func(TB) func() { own.Pause(d.broker); return func() { own.Resume(d.broker) } }
	b.Disconnect = func(tb TB) { require.NoError(tb, d.disconnect(tb, admin)) }
	return b
}

func (d database) disconnect(tb TB, admin *stdsql.DB) error {
	rows, err := admin.QueryContext(tb.Context(), d.others)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		_, _ = admin.ExecContext(tb.Context(), fmt.Sprintf(d.end, id)) // it may have gone by itself
	}
	return rows.Err()
}
