package sqldb_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// user makes one with rights to nothing, and gives the options to log in by.
// They have a password, which nothing may show.
func user(t *testing.T, admin *sql.DB, o sqldb.Options) sqldb.Options {
	t.Helper()
	name := "u" + strings.TrimPrefix(o.Server.Database, "leat_")
	create, drop := "CREATE ROLE "+name+" LOGIN PASSWORD 's3cret'", "DROP OWNED BY "+name+"; DROP ROLE "+name
	if o.Dialect == sqldb.MySQL {
		create, drop = "CREATE USER "+name+" IDENTIFIED BY 's3cret'", "DROP USER "+name
	}
	run(t, admin, create)
	t.Cleanup(func() { run(t, admin, drop) })
	o.Server.Username, o.Server.Password = name, "s3cret"
	return o
}

func run(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	_, err := db.Exec(query)
	require.NoError(t, err, query)
}

// tablesOf are those that a worker writes.
func tablesOf(t *testing.T, admin *sql.DB, o sqldb.Options) (names []string) {
	t.Helper()
	rows, err := admin.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = " + by(o, "'public'", "database()") + " AND table_name LIKE 'leat\\_%' AND table_name <> 'leat_schema' ORDER BY 1")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	require.Contains(t, names, "leat_dedup")
	return names
}

func refuses(t *testing.T, o sqldb.Options, says ...string) {
	t.Helper()
	db, err := sqldb.Open(t.Context(), o)
	if err == nil {
		require.NoError(t, db.Close())
	}
	require.Error(t, err)
	for _, text := range says {
		require.ErrorContains(t, err, text)
	}
	require.ErrorContains(t, err, o.Name(), "says where")
	require.NotContains(t, err.Error(), "s3cret")
	require.True(t, sqldb.Unusable(err), err)
}

// A user who may read and write the tables, and nothing else, is enough for
// `topology: verify`, and for declare where there is nothing left to do.
func TestRightsNeeded(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		admin := sqldbtest.Admin(t, o)
		small := user(t, admin, o)
		name := small.Server.Username
		verify := small
		verify.Verify = true
		grant := func(what, on string) string {
			if o.Dialect == sqldb.MySQL {
				return "GRANT " + what + " ON " + o.Server.Database + "." + on + " TO " + name
			}
			return "GRANT " + what + " ON " + on + " TO " + name
		}
		if o.Dialect == sqldb.Postgres {
			refuses(t, verify, "has schema version 0, this program needs 1", "worker migrate")
			refuses(t, small, "lacks a right", "permission denied for schema public", "topology: verify")
		} else {
			refuses(t, verify, "lacks a right", "to database '"+o.Server.Database)
			run(t, admin, grant("SELECT", "*"))
			refuses(t, verify, "has schema version 0, this program needs 1", "worker migrate")
			refuses(t, small, "lacks a right", "CREATE command denied")
			run(t, admin, "REVOKE SELECT ON "+o.Server.Database+".* FROM "+name)
			run(t, admin, "CREATE TABLE other (x INT)")
			run(t, admin, grant("SELECT", "other"))
		}

		require.NoError(t, sqldbtest.Open(t, o).Close())
		tables := tablesOf(t, admin, o)
		rights := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
		for _, o := range []sqldb.Options{verify, small} {
			refuses(t, o, "lacks rights: grant it SELECT on ", "leat_schema; SELECT, INSERT, UPDATE, DELETE on ", "leat_topics, ", tables[0])
			require.NotContains(t, refusal(t, o), "topology: verify")
		}
		run(t, admin, grant("SELECT", "leat_schema"))
		refuses(t, verify, "lacks rights: grant it SELECT, INSERT, UPDATE, DELETE on ", "leat_topics, ")
		for _, right := range rights { // each of them
			refuses(t, verify, right, tables[0])
			run(t, admin, grant(right, tables[0]))
		}
		for _, table := range tables[1:] {
			for _, right := range rights {
				run(t, admin, grant(right, table))
			}
		}
		db := sqldbtest.Open(t, verify)
		require.NoError(t, db.Close())
		require.NoError(t, sqldbtest.Open(t, small).Close(), "there is nothing to do")
	})
}

// Without USAGE on the schema PostgreSQL says that and nothing else, whatever is
// missing besides.
func TestUsageOfTheSchema(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	o.Server.Schema = "mine"
	require.NoError(t, sqldbtest.Open(t, o).Close())
	admin := sqldbtest.Admin(t, o)
	small := user(t, admin, o)
	name := small.Server.Username
	small.Verify = true
	usage := "grant it USAGE on schema mine (GRANT USAGE ON SCHEMA mine TO " + name + ")"
	refuses(t, small, usage+"; SELECT on mine.leat_schema; SELECT, INSERT, UPDATE, DELETE on mine.leat_topics, mine.")
	require.NotContains(t, refusal(t, small), "topology: verify")
	run(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA mine TO "+name)
	run(t, admin, "REVOKE DELETE ON mine.leat_dedup FROM "+name)
	refuses(t, small, usage+"; DELETE on mine.leat_dedup: ")
	run(t, admin, "GRANT DELETE ON mine.leat_dedup TO "+name)
	refuses(t, small, usage+": ")
	run(t, admin, "GRANT USAGE ON SCHEMA mine TO "+name)
	require.NoError(t, sqldbtest.Open(t, small).Close())
}

// refusal is what opening says.
func refusal(t *testing.T, o sqldb.Options) string {
	t.Helper()
	_, err := sqldb.Open(t.Context(), o)
	require.Error(t, err)
	return err.Error()
}

func TestSchemaOfItsOwnIsMade(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.Postgres)
	admin := sqldbtest.Admin(t, o)
	small := user(t, admin, o)
	small.Server.Schema = "mine"
	refuses(t, small, "schema mine", "lacks a right", "permission denied for database")
	verify := small
	verify.Verify = true
	refuses(t, verify, "has schema version 0")
	run(t, admin, "GRANT CREATE ON DATABASE "+o.Server.Database+" TO "+small.Server.Username)
	db := sqldbtest.Open(t, small)
	var schema string
	require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT schemaname FROM pg_tables WHERE tablename = ?", []any{"leat_messages"}, &schema))
	require.Equal(t, "mine", schema)
	reserved := o
	reserved.Server.Schema = "user"
	refuses(t, reserved, "needs quotes")
}
