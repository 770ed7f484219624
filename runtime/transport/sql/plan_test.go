package sql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// TestPlansCompareNoLists: a list is looked up in an index, or hashed, but never
// gone through for each row, which takes its length squared.
func TestPlansCompareNoLists(t *testing.T) {
	t.Parallel()
	db := sqldbtest.Open(t, sqldbtest.At(t, sqldb.Postgres, brokertest.URL(t, "postgres")))
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	var version int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version < 160000 {
		t.Skip("EXPLAIN (GENERIC_PLAN) comes with PostgreSQL 16")
	}
	_, err = conn.Exec(t.Context(), "SET enable_seqscan = off") // as where there are rows
	require.NoError(t, err)
	for name, statement := range sql.ListStatements() {
		rows, err := conn.Conn().PgConn().Exec(t.Context(), "EXPLAIN (GENERIC_PLAN) "+db.SQL(statement)).ReadAll()
		require.NoError(t, err, name)
		require.NotEmpty(t, rows, name)
		for _, row := range rows[0].Rows {
			line := string(row[0])
			require.False(t, strings.Contains(line, "Filter: ") && strings.Contains(line, "= ANY"), "%s: %s", name, line)
		}
	}
}
