package sqldb_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
)

func TestPendingOfEachState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := func(path string) (names []string) {
		pending, err := sqldb.Pending(t.Context(), sqldb.Options{Path: path})
		require.NoError(t, err)
		for _, m := range pending {
			names = append(names, m.Name)
		}
		return names
	}
	none := filepath.Join(dir, "none.db")
	require.Equal(t, []string{"00001_leat.sql"}, names(none))
	require.NoFileExists(t, none)

	empty := filepath.Join(dir, "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.Equal(t, []string{"00001_leat.sql"}, names(empty))
	info, err := os.Stat(empty)
	require.NoError(t, err)
	require.Zero(t, info.Size(), "looking changes nothing")

	path := filepath.Join(dir, "x.db")
	db := openAt(t, path)
	require.Empty(t, names(path))
	complaints, err := sqldb.Check(t.Context(), sqldb.Options{Path: path})
	require.NoError(t, err)
	require.Empty(t, complaints)

	runIn(t, db, "INSERT INTO leat_schema (version_id, is_applied) VALUES (2099, 1)")
	_, err = sqldb.Pending(t.Context(), sqldb.Options{Path: path})
	require.ErrorContains(t, err, "newer than the 1 this program knows")
	require.True(t, sqldb.Unusable(err))
}

// TestPendingIsWhatOpenRuns: the SQL that is shown makes the same schema.
func TestPendingIsWhatOpenRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	schema := func(db *sql.DB) (all []string) {
		rows, err := db.QueryContext(t.Context(), "SELECT sql FROM sqlite_schema WHERE name LIKE 'leat_%' AND name <> 'leat_schema' AND sql IS NOT NULL ORDER BY name")
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var text string
			require.NoError(t, rows.Scan(&text))
			all = append(all, text)
		}
		require.NoError(t, rows.Err())
		return all
	}
	want := schema(openAt(t, filepath.Join(dir, "x.db")).Reader)
	require.NotEmpty(t, want)
	pending, err := sqldb.Pending(t.Context(), sqldb.Options{Path: filepath.Join(dir, "none.db")})
	require.NoError(t, err)
	raw, err := sql.Open("sqlite", filepath.Join(dir, "by-hand.db"))
	require.NoError(t, err)
	defer raw.Close()
	for _, m := range pending {
		_, err := raw.ExecContext(t.Context(), m.SQL)
		require.NoError(t, err)
	}
	require.Equal(t, want, schema(raw))
}

// TestCheckRefuses what is no database; else it looks on while another program writes.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	require.NoError(t, os.WriteFile(text, []byte("this is a text, and by no means an SQLite database, as is plain to see"), 0o600))
	_, err := sqldb.Check(t.Context(), sqldb.Options{Path: text})
	require.ErrorContains(t, err, "is not an SQLite database")
	_, err = sqldb.Check(t.Context(), sqldb.Options{Path: dir})
	require.ErrorContains(t, err, "is a directory")

	path := filepath.Join(dir, "x.db")
	db := openAt(t, path)
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('s', 'k', 1, ?)", int64(time.Hour))
		require.NoError(t, err)
		complaints, err := sqldb.Check(t.Context(), sqldb.Options{Path: path})
		require.NoError(t, err)
		require.Empty(t, complaints)
		return nil
	}))
}
