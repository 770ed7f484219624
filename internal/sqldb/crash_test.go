package sqldb_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// P1, M2: a server that is killed, stopped or paused under load is an outage.
// What was committed is there afterwards, once, and the pool is good again by itself.
func TestServerGoesAndComes(t *testing.T) {
	t.Parallel()
	for dialect, name := range sqldbtest.Brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := brokertest.Start(t, name)
			o := sqldb.Options{Dialect: dialect, Server: sqldb.Server{URL: own.URL(name)}}
			o.Server.StatementTimeout = 500 * time.Millisecond
			db := sqldbtest.Open(t, o)
			topics(t, db, 1)

			ctx, stop := context.WithCancel(t.Context())
			committed, unknown := 0, 0
			resumed := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for ctx.Err() == nil {
					err := db.InTx(ctx, func(tx *sql.Tx) error {
						return raise(ctx, db, tx, "0")
					})
					switch {
					case err == nil:
						committed++
						select {
						case resumed <- struct{}{}:
						default:
						}
					case sqldb.Unusable(err):
						t.Error(err)
						return
					default:
						unknown++
						pause(ctx)
					}
				}
			}()
			works := func() {
				t.Helper()
				for range 3 {
					select {
					case <-resumed:
					case <-time.After(2 * deadline):
						require.FailNow(t, "does not go on")
					}
				}
				if dialect == sqldb.Postgres {
					listening(t, db, true)
				}
			}
			works()
			for range 3 {
				own.Kill(name)
				own.Up(name)
				works()
			}
			own.Restart(name)
			works()
			own.Pause(name)
			pause(ctx)
			own.Resume(name)
			works()
			stop()
			<-ended
			var sum int
			require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT retention FROM leat_topics", nil, &sum))
			require.GreaterOrEqual(t, sum, committed)
			require.LessOrEqual(t, sum, committed+unknown)
			t.Logf("%d committed, %d failed, %d in all", committed, unknown, sum)
		})
	}
}

// pause is the time between two tries.
func pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}
