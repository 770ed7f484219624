package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// TestScripts: a script is all there or nothing is, and whatever fails leaves no
// transaction open on a connection that others are given.
func TestScripts(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.MySQL)
	o.Server.PoolSize = 2
	db := sqldbtest.Open(t, o)
	other := sqldbtest.Admin(t, o)
	own := errors.New("of the caller")
	do := func(script string) func(*sql.Conn) error {
		return func(conn *sql.Conn) error {
			_, err := conn.ExecContext(t.Context(), script)
			return err
		}
	}
	add := func(name string) string {
		return "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('" + name + "', '', 1, 0)"
	}
	count := func() (n int) {
		require.NoError(t, other.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_topics").Scan(&n))
		return n
	}
	var version string
	require.NoError(t, other.QueryRowContext(t.Context(), "SELECT version()").Scan(&version))
	nothing := func(name string) {
		require.Zero(t, count(), name)
		if !strings.Contains(version, "MariaDB") {
			return // it cannot say so
		}
		for range o.Server.PoolSize { // all of them
			conn, err := db.Writer.Conn(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			open := true
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT @@in_transaction").Scan(&open))
			require.False(t, open, "%s: a transaction is open", name)
		}
	}
	const begin = "START TRANSACTION"
	for name, of := range map[string]struct {
		begin, rest func(*sql.Conn) error
		err         string
	}{
		"first statement":  {do(begin + "; SELECT nothing"), do("COMMIT"), "nothing"},
		"begin gives up":   {func(c *sql.Conn) error { return errors.Join(do(begin+"; "+add("a"))(c), own) }, do("COMMIT"), own.Error()},
		"middle of script": {do(begin), do(add("a") + "; " + add("a") + "; COMMIT"), "Duplicate"},
		"rest gives up":    {do(begin), func(c *sql.Conn) error { return errors.Join(do(add("a"))(c), own) }, own.Error()},
		"connection lost": {do(begin), func(c *sql.Conn) error {
			var id int64
			require.NoError(t, c.QueryRowContext(t.Context(), add("a")+"; SELECT CONNECTION_ID()").Scan(&id))
			_, err := other.ExecContext(t.Context(), fmt.Sprint("KILL ", id))
			require.NoError(t, err)
			return do("COMMIT")(c)
		}, "connection"},
	} {
		err := db.InScripts(t.Context(), of.begin, of.rest)
		require.ErrorContains(t, err, of.err, name)
		nothing(name)
	}
	require.Panics(t, func() {
		_ = db.InScripts(t.Context(), do(begin+"; "+add("a")), func(*sql.Conn) error { panic("of the caller") })
	})
	nothing("panic")
	ctx, cancel := context.WithCancel(t.Context())
	err := db.InScripts(ctx, do(begin+"; "+add("a")), func(conn *sql.Conn) error {
		cancel()
		_, err := conn.ExecContext(ctx, "COMMIT")
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	nothing("cancelled")

	require.NoError(t, db.InScripts(t.Context(), do(begin), do(add("c")+"; "+add("d")+"; COMMIT")))
	require.Equal(t, 2, count())
}
