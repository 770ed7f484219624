package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// topics makes rows to lock, named 0, 1, ….
func topics(t *testing.T, db *sqldb.DB, n int) {
	t.Helper()
	for i := range n {
		_, err := db.Writer.ExecContext(t.Context(), db.SQL("INSERT INTO leat_topics (name, uid, partitions, retention) VALUES (?, '', 1, 0)"), fmt.Sprint(i))
		require.NoError(t, err)
	}
}

func raise(ctx context.Context, db *sqldb.DB, tx *sql.Tx, name string) error {
	_, err := db.Exec(ctx, tx, "UPDATE leat_topics SET retention = retention + 1 WHERE name = ?", name)
	return err
}

// M3: two transactions that lock the same rows in opposite orders end in a
// deadlock. The one that loses is run again, as a whole.
func TestDeadlockIsRunAgain(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		topics(t, db, 2)
		var wg sync.WaitGroup
		var met sync.WaitGroup
		met.Add(2)
		runs := make(chan int, 16)
		for i := range 2 {
			wg.Go(func() {
				n := 0
				err := db.InTx(t.Context(), func(tx *sql.Tx) error {
					n++
					if err := raise(t.Context(), db, tx, fmt.Sprint(i)); err != nil {
						return err
					}
					if n == 1 {
						met.Done()
						met.Wait()
					}
					return raise(t.Context(), db, tx, fmt.Sprint(1-i))
				})
				if err != nil {
					t.Error(err)
				}
				runs <- n
			})
		}
		wg.Wait()
		require.Equal(t, 3, <-runs+<-runs)
		require.Equal(t, int64(1), db.Retries())
		var sum int
		require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT sum(retention) FROM leat_topics", nil, &sum))
		require.Equal(t, 4, sum, "each once")
	})
}

// A lock that is not had in time is waited for again (MariaDB's 1205; PostgreSQL
// has no limit of its own, and statement_timeout ends the statement).
func TestLockWaitIsRunAgain(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.MySQL)
	db := sqldbtest.Open(t, o)
	topics(t, db, 1)
	tx, err := db.Writer.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, raise(t.Context(), db, tx, "0"))
	runs := 0
	err = db.InTx(t.Context(), func(own *sql.Tx) error {
		if runs++; runs == 2 {
			require.NoError(t, tx.Commit())
		} else if _, err := own.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
			return err
		}
		return raise(t.Context(), db, own, "0")
	})
	require.NoError(t, err)
	require.Equal(t, 2, runs)
	require.Equal(t, int64(1), db.Retries())
}

func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	db := sqldbtest.Open(t, o)
	conflict := func(ctx context.Context) error {
		return db.InTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
			return fmt.Errorf("noun: %w", err)
		})
	}
	err := conflict(t.Context())
	require.ErrorContains(t, err, "20 conflicts with other transactions in a row: noun")
	require.True(t, sqldb.Conflict(err))
	require.False(t, sqldb.Unusable(err))
	require.Equal(t, int64(19), db.Retries())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, conflict(ctx), context.DeadlineExceeded)
}

func TestErrorsOfOthersPass(t *testing.T) {
	t.Parallel()
	sqldbtest.Each(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		own := errors.New("of the caller")
		require.Equal(t, own, db.InTx(t.Context(), func(*sql.Tx) error { return own }))
		require.NoError(t, db.Explain(nil))
		require.Equal(t, sql.ErrNoRows, db.Explain(sql.ErrNoRows))
		require.ErrorIs(t, db.QueryRow(t.Context(), nil, "SELECT id FROM leat_topics", nil, new(int)), sql.ErrNoRows)
	})
}

func TestIsolationIsReadCommitted(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		admin := sqldbtest.Admin(t, o)
		if o.Dialect == sqldb.Postgres {
			run(t, admin, "ALTER DATABASE "+o.Server.Database+" SET default_transaction_isolation = 'serializable'")
		}
		db := sqldbtest.Open(t, o)
		var name, level string
		require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
			return db.QueryRow(t.Context(), tx, by(o, "SELECT '', current_setting('transaction_isolation')",
				"SHOW SESSION VARIABLES WHERE variable_name IN ('tx_isolation', 'transaction_isolation')"), nil, &name, &level)
		}))
		require.Contains(t, []string{"read committed", "READ-COMMITTED"}, level)
		if o.Dialect == sqldb.Postgres { // a batch begins none by name
			var jit string
			require.NoError(t, db.Pool.QueryRow(t.Context(), "SELECT current_setting('transaction_isolation'), current_setting('jit')").Scan(&level, &jit))
			require.Equal(t, "read committed", level)
			require.Equal(t, "off", jit)
		}
	})
}

// querier is a pool, or one of its connections.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// The next statement on a connection after one that read uncommitted, or was to,
// reads committed.
func TestUncommitted(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.MySQL)
	o.Server.PoolSize = 2 // one of which the writer has
	db := sqldbtest.Open(t, o)
	tx, err := db.Writer.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('late', '', 1, 0)")
	require.NoError(t, err)
	count := func(by querier) (n int) {
		require.NoError(t, by.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_topics").Scan(&n))
		return n
	}
	require.NoError(t, db.Uncommitted(t.Context(), func(conn *sql.Conn) error {
		require.Equal(t, 1, count(conn))
		require.Zero(t, count(conn))
		return nil
	}))
	require.Zero(t, count(db.Reader))
	own := errors.New("of the caller")
	require.Equal(t, own, db.Uncommitted(t.Context(), func(*sql.Conn) error { return own }))
	require.Zero(t, count(db.Reader))
	require.NoError(t, tx.Rollback())
}
