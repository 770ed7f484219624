package sqldb_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// Two workers that start at the same instant, thirty times, where there is
// nothing yet: both come up, and each set of tables is a database of its own.
func TestSimultaneousStartsOnServers(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		for i := range 30 {
			o.Server.TablePrefix = fmt.Sprintf("t%d_", i)
			if o.Dialect == sqldb.Postgres {
				o.Server.Schema = fmt.Sprintf("s%d", i)
			}
			var wg sync.WaitGroup
			start := make(chan struct{})
			for worker := range 2 {
				o := o
				o.Server.ApplicationName = fmt.Sprint("worker ", worker) // and so with connections of its own
				wg.Go(func() {
					<-start
					db, err := sqldb.Open(t.Context(), o)
					if err != nil {
						t.Error(err)
						return
					}
					defer db.Close()
					if _, err := db.Writer.ExecContext(t.Context(), db.SQL("INSERT INTO leat_topics (name, uid, partitions, retention) VALUES (?, '', 1, 1)"), o.Server.ApplicationName[7:]); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
			db := sqldbtest.Open(t, o)
			var n int
			require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT count(*) FROM leat_topics", nil, &n))
			require.Equal(t, 2, n)
			require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT count(*) FROM leat_schema WHERE version_id = 1", nil, &n))
			require.Equal(t, 1, n, "migrated once")
			require.NoError(t, db.Close())
		}
	})
}

// MariaDB commits each table as it is made: what a killed worker has left half
// done is gone on with.
func TestMigrationGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.MySQL)
	admin := sqldbtest.Admin(t, o)
	require.NoError(t, sqldbtest.Open(t, o).Close())
	run(t, admin, "DELETE FROM leat_schema WHERE version_id = 1")
	run(t, admin, "DROP TABLE leat_members, leat_dedup, leat_partitions")
	db := sqldbtest.Open(t, o)
	var n int
	require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT count(*) FROM leat_schema WHERE version_id = 1", nil, &n))
	require.Equal(t, 1, n)
}
