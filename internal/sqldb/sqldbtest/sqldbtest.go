// Package sqldbtest gives tests databases of their own, on files and on the
// shared servers of brokertest.
package sqldbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
)

// Brokers are the dialects that have a server, by brokertest's names.
var Brokers = map[sqldb.Dialect]string{sqldb.Postgres: "postgres", sqldb.MySQL: "mariadb"}

// Each runs a test on each kind of database, side by side. Where a server is
// not configured, its test is skipped.
func Each(t *testing.T, test func(t *testing.T, o sqldb.Options)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, File(t))
	})
	Servers(t, test)
}

// Servers is [Each] without SQLite.
func Servers(t *testing.T, test func(t *testing.T, o sqldb.Options)) {
	t.Helper()
	for dialect, name := range Brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, New(t, dialect))
		})
	}
}

// File is a new SQLite file.
func File(tb testing.TB) sqldb.Options {
	tb.Helper()
	return sqldb.Options{Dialect: sqldb.SQLite, Path: filepath.Join(tb.TempDir(), "worker.db")}
}

// New makes an empty database on a shared server, which ends with the test.
func New(tb testing.TB, dialect sqldb.Dialect) sqldb.Options {
	tb.Helper()
	return At(tb, dialect, brokertest.URL(tb, Brokers[dialect]))
}

// At is [New] on a server that a URL names, as a user who may make databases.
func At(tb testing.TB, dialect sqldb.Dialect, rawURL string) sqldb.Options {
	tb.Helper()
	name := "leat_" + strings.ToLower(rand.Text())[:16]
	o := sqldb.Options{Dialect: dialect, Server: sqldb.Server{URL: rawURL}}
	admin := Admin(tb, o)
	_, err := admin.ExecContext(context.Background(), "CREATE DATABASE "+name)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		drop := "DROP DATABASE IF EXISTS " + name //nolint:gosec // it is ours
		if dialect == sqldb.Postgres {
			drop += " WITH (FORCE)"
		}
		_, err := admin.ExecContext(context.Background(), drop)
		require.NoError(tb, err)
	})
	o.Server.Database = name
	return o
}

// Admin connects, past sqldb, as the user whom the URL names.
func Admin(tb testing.TB, o sqldb.Options) *sql.DB {
	tb.Helper()
	u, err := url.Parse(o.Server.URL)
	require.NoError(tb, err)
	if o.Server.Database != "" {
		u.Path = "/" + o.Server.Database
	}
	driver, dsn := "pgx", u.String()
	if o.Dialect == sqldb.MySQL {
		cfg := mysql.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		cfg.Passwd, _ = u.User.Password()
		cfg.MultiStatements = true
		driver, dsn = "mysql", cfg.FormatDSN()
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// Open opens a database for the test's life.
func Open(tb testing.TB, o sqldb.Options) *sqldb.DB {
	tb.Helper()
	db, err := sqldb.Open(context.Background(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}
