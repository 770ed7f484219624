package sqldb_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// A link that breaks after any number of bytes: the error is an outage, a
// transaction is there as a whole or not at all, and the next one works.
func TestLinkBreaksAnywhere(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		direct := sqldbtest.Open(t, o)
		topics(t, direct, 2)
		proxied := o
		proxy := through(t, &proxied)
		db := another(t, proxied)
		insert := func() error {
			return db.InTx(t.Context(), func(tx *sql.Tx) error {
				return errors.Join(raise(t.Context(), db, tx, "0"), raise(t.Context(), db, tx, "1"))
			})
		}
		sum := func() (a, b int) {
			require.NoError(t, direct.QueryRow(t.Context(), nil, "SELECT min(retention), max(retention) FROM leat_topics", nil, &a, &b))
			return a, b
		}
		failed, unknown := 0, 0
		require.NoError(t, insert())
		for _, dir := range []brokertest.Direction{brokertest.ToBroker, brokertest.ToClient} {
			for bytes := 0; bytes < 700; bytes += 13 {
				before, _ := sum()
				proxy.LimitThenReset(dir, bytes)
				err := insert()
				proxy.LimitThenReset(dir, 1<<30) // where the last one was never reached
				var a, b int
				require.Eventually(t, func() bool { // a server may need a moment to see that its client is gone
					a, b = sum()
					return a == b
				}, deadline, time.Millisecond, "a transaction is a whole")
				if err == nil {
					require.Equal(t, before+1, a)
					continue
				}
				failed++
				if a != before {
					unknown++
				}
				require.False(t, sqldb.Unusable(err), "%v", err)
				require.ErrorContains(t, err, "database "+db.Name)
				require.NoError(t, insert(), "the next one has another connection")
			}
		}
		t.Logf("%d failed, %d of them had committed", failed, unknown)
		require.Positive(t, failed)
	})
}

// A server that says nothing any more is given up after a while.
func TestLinkStalls(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		proxy := through(t, &o)
		o.Server.StatementTimeout = 100 * time.Millisecond // and five seconds for the link
		db := sqldbtest.Open(t, o)
		proxy.Stall()
		ended := make(chan error, 1)
		go func() {
			ended <- db.InTx(t.Context(), func(tx *sql.Tx) error {
				_, err := db.Exec(t.Context(), tx, "DELETE FROM leat_topics")
				return err
			})
		}()
		select {
		case err := <-ended:
			require.ErrorContains(t, err, "database "+db.Name)
			require.False(t, sqldb.Unusable(err))
		case <-time.After(4 * deadline):
			require.FailNow(t, "not given up")
		}
		proxy.Resume()
		require.Eventually(t, func() bool {
			return db.InTx(t.Context(), func(tx *sql.Tx) error {
				_, err := db.Exec(t.Context(), tx, "DELETE FROM leat_topics")
				return err
			}) == nil
		}, 4*deadline, 10*time.Millisecond)
	})
}
