package worker_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// component is a database as a file names it.
func component(o sqldb.Options) string {
	return fmt.Sprintf("{%s: {url: %q, database: %s}}", o.Dialect, o.Server.URL, o.Server.Database)
}

// says runs a command of the worker to its end.
func (s *site) says(code int, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), testworker(s.t), args...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if code == 0 {
		require.NoError(s.t, err, "%s", out)
	}
	require.Equal(s.t, code, cmd.ProcessState.ExitCode(), "%s", out)
	return string(out)
}

// TestMigrateServers: looking changes nothing, what is shown is what is run,
// and a worker that may create nothing starts after it.
func TestMigrateServers(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		s := newSite(t, "0s", "done")
		s.write("worker.yaml", "name: test\nbroker: "+component(o)+"\nconsumers: {c: {topic: t, handler: log}}\nhttp: {listen: off}\n")
		plan := s.says(0, "migrate", "--dry-run")
		require.Contains(t, plan, "-- "+o.Name()+": 00001_leat.sql\n")
		require.Contains(t, s.says(1, "migrate", "--check"), "00001_leat.sql not applied yet; run migrate")
		require.Contains(t, s.says(1, "run", "--until-idle", "100ms", "--set", "topology=verify"), "has schema version 0, this program needs 1")

		byHand := sqldbtest.New(t, o.Dialect)
		run := sqldbtest.Admin(t, byHand)
		for statement := range strings.SplitSeq(plan, ";\n") {
			if strings.Contains(statement, "CREATE") {
				_, err := run.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
		}
		require.Contains(t, s.says(0, "migrate"), ": applied 00001_leat.sql")
		require.Contains(t, s.says(0, "migrate"), ": up to date")
		require.Contains(t, s.says(0, "migrate", "--check"), ": ok")
		require.Equal(t, columns(t, o), columns(t, byHand))

		s.says(0, "run", "--until-idle", "100ms")
		s.says(0, "run", "--until-idle", "100ms", "--set", "topology=verify")
	})
}

// columns are all of a database, but those of the list of versions.
func columns(t *testing.T, o sqldb.Options) (all []string) {
	t.Helper()
	schema := "database()"
	if o.Dialect == sqldb.Postgres {
		schema = "'public'"
	}
	rows, err := sqldbtest.Admin(t, o).QueryContext(t.Context(), `SELECT concat(table_name, ' ', column_name, ' ', data_type, ' ', is_nullable, ' ', coalesce(collation_name, ''))
 FROM information_schema.columns WHERE table_schema = `+schema+` AND table_name <> 'leat_schema' ORDER BY table_name, ordinal_position`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		all = append(all, text)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, all)
	return all
}

// TestStoreOnServers keeps dedup keys beside a broker of another kind, and
// knows them after a restart.
func TestStoreOnServers(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		s := newSite(t, "0s", "done")
		s.write("worker.yaml", fmt.Sprintf(siteYAML, s.path("trace"), "0s", "done")+"store: "+component(o)+"\ndefaults: {dedup: {key: id}}\n")
		for range 2 {
			s.publish(20)
			s.says(0, "run", "--until-idle", "300ms")
		}
		require.Len(t, s.traces().done, 20)
		for id, n := range s.traces().done {
			require.Equal(t, 1, n, id)
		}
		db := sqldbtest.Open(t, o)
		var n int
		require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT count(*) FROM leat_dedup WHERE done = 1", nil, &n))
		require.Equal(t, 20, n)
		require.Contains(t, s.says(0, "migrate", "--check"), o.Name()+": ok")

		o.Server.Database = "leat_none"
		s.write("worker.yaml", fmt.Sprintf(siteYAML, s.path("trace"), "0s", "done")+"store: "+component(o)+"\ndefaults: {dedup: {key: id}}\n")
		require.Contains(t, s.says(1, "run", "--until-idle", "300ms"), "database leat_none does not exist on the server: create it")
	})
}
