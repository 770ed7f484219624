package sqldb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatementsAreRewritten(t *testing.T) {
	t.Parallel()
	pg := &names{dialect: Postgres, tables: "s.acme_"}
	my := &names{dialect: MySQL, tables: "acme_"}
	for query, want := range map[string][2]string{
		"SELECT * FROM leat_topics t JOIN leat_groups USING (id) WHERE name = ? AND id > ?": {
			"SELECT * FROM s.acme_topics t JOIN s.acme_groups USING (id) WHERE name = $1 AND id > $2",
			"SELECT * FROM acme_topics t JOIN acme_groups USING (id) WHERE name = ? AND id > ?",
		},
		"DELETE FROM leat_dedup WHERE id = ?2 OR id = ?12": {
			"DELETE FROM s.acme_dedup WHERE id = $2 OR id = $12",
			"DELETE FROM acme_dedup WHERE id = ?2 OR id = ?12",
		},
		`SELECT "key", 'it''s ? leat_x', "leat_y" FROM leat_topics -- what's leat_z?` + "\nWHERE a = ?": {
			`SELECT "key", 'it''s ? leat_x', "leat_y" FROM s.acme_topics -- what's leat_z?` + "\nWHERE a = $1",
			"SELECT `key`, 'it''s ? leat_x', `leat_y` FROM acme_topics -- what's leat_z?" + "\nWHERE a = ?",
		},
		"SELECT xleat_a, x.leat_b, $1::int[] FROM leat_c": {
			"SELECT xleat_a, x.leat_b, $1::int[] FROM s.acme_c",
			"SELECT xleat_a, x.leat_b, $1::int[] FROM acme_c",
		},
		"'unclosed ?": {"'unclosed ?", "'unclosed ?"},
	} {
		for range 2 { // made, and kept
			require.Equal(t, want[0], pg.SQL(query))
			require.Equal(t, want[1], my.SQL(query))
		}
		require.Equal(t, query, (&names{dialect: SQLite, tables: prefix}).SQL(query))
	}
	require.Equal(t, "s.acme_dedup", pg.Table("leat_dedup"))
}

// What Open looks for is what migrations make.
func TestTablesAreReadOutOfMigrations(t *testing.T) {
	t.Parallel()
	lite, err := tables(SQLite)
	require.NoError(t, err)
	require.NotEmpty(t, lite)
	for _, d := range []Dialect{Postgres, MySQL} {
		all, err := tables(d)
		require.NoError(t, err)
		there := map[string][]string{}
		for _, table := range all {
			there[table.name] = table.columns
		}
		for _, table := range lite {
			require.Subset(t, there[table.name], table.columns, "%s of %s: names and meanings are the same everywhere", table.name, d)
		}
	}
}

func TestVersionsSayWhoMayGoOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have, want int64
		left       bool
	}{
		{0, 1, false},
		{1, 1, false},
		{2, 1, false},
		{999, 1, false},
		{1002, 1, false}, // needs the first, which we know
		{2003, 1, true},  // needs the second
		{2003, 2, false},
		{2003, 2003, false},
		{2004, 2003, false},
		{4005, 2003, true},
		{3005, 2003, false},
	} {
		require.Equal(t, c.left, leftBehind(c.have, c.want), "%d beside a program of %d", c.have, c.want)
	}
}
