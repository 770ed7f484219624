package sqldb_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// another opens the same database as another process would.
func another(t *testing.T, o sqldb.Options) *sqldb.DB {
	t.Helper()
	o.Server.ApplicationName = "another"
	return sqldbtest.Open(t, o)
}

const deadline = 20 * time.Second

func woken(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(deadline):
		require.FailNow(t, "not woken")
	}
}

func listening(t *testing.T, db *sqldb.DB, want bool) {
	t.Helper()
	require.Eventually(t, func() bool { return db.Listening() == want }, deadline, 5*time.Millisecond)
}

func TestWakeReachesOtherProcesses(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	one, two := sqldbtest.Open(t, o), another(t, o)
	listening(t, two, true)
	own, cancel := one.Subscribe("topic")
	defer cancel()
	other, cancel := two.Subscribe("topic")
	defer cancel()
	apart, cancel := two.Subscribe("topic2")
	defer cancel()
	one.Wake("topic")
	woken(t, own)
	woken(t, other)
	require.Empty(t, apart)

	// A transaction of whoever: everybody hears of it when it commits.
	listening(t, one, true)
	select {
	case <-own: // that of having begun to listen
	default:
	}
	query, args := one.NotifySQL("topic")
	require.NoError(t, one.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := one.Exec(t.Context(), tx, query, args...)
		require.Empty(t, own)
		return err
	}))
	woken(t, own)
	woken(t, other)
}

func TestOtherTablesAreNotWoken(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	one := sqldbtest.Open(t, o)
	o.Server.TablePrefix = "other_"
	two := another(t, o)
	listening(t, two, true)
	ch, cancel := two.Subscribe("topic")
	defer cancel()
	fence, cancel := two.Subscribe("fence")
	defer cancel()
	for range 20 {
		one.Wake("topic")
	}
	three := sqldbtest.Open(t, o)
	three.Wake("fence")
	woken(t, fence)
	require.Empty(t, ch)
}

// A link that breaks is made again, and all who may have missed something are woken.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	one := sqldbtest.Open(t, o)
	proxied := o
	proxy := through(t, &proxied)
	two := another(t, proxied)
	listening(t, two, true)
	ch, cancel := two.Subscribe("topic")
	defer cancel()
	proxy.Cut()
	listening(t, two, false)
	one.Wake("topic")
	require.Empty(t, ch)
	proxy.Heal()
	woken(t, ch)
	listening(t, two, true)
	one.Wake("topic")
	woken(t, ch)
}

// Behind a pooler that gives each transaction another connection nothing is
// listened for, prepared or set.
func TestPoolerMode(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	o.Server.Pooler = "transaction"
	db := sqldbtest.Open(t, o)
	require.False(t, db.Listening())
	query, _ := db.NotifySQL("topic")
	require.Empty(t, query)
	ch, cancel := db.Subscribe("topic")
	defer cancel()
	db.Wake("topic")
	woken(t, ch)
	topics(t, db, 3)
	rows, err := db.Pool.Query(t.Context(), "SELECT x FROM unnest($1::bigint[]) x", []int64{1, 2})
	require.NoError(t, err)
	rows.Close()
	require.NoError(t, rows.Err())
	var prepared int
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&prepared))
	require.Zero(t, prepared)
	var timeout string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('statement_timeout')").Scan(&timeout))
	require.Equal(t, "0", timeout)
}
