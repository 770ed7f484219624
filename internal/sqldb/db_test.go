package sqldb_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
)

func openAt(t *testing.T, path string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), sqldb.Options{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func runIn(t *testing.T, db *sqldb.DB, query string, args ...any) {
	t.Helper()
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), query, args...)
		return err
	}))
}

func TestOpenCreatesForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%41.db")
	db := openAt(t, path)
	runIn(t, db, "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('s', 'k', 1, 0)")
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	var mode string
	require.NoError(t, db.Reader.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	require.Equal(t, "wal", mode)
	_, err := db.Reader.ExecContext(t.Context(), "DELETE FROM leat_topics")
	require.Error(t, err, "readers cannot write")
}

func TestOpenSharesOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := openAt(t, filepath.Join(dir, "x.db"))
	require.NoError(t, os.Symlink("x.db", filepath.Join(dir, "y.db")))
	b := openAt(t, filepath.Join(dir, ".", "y.db"))
	require.Same(t, a.Writer, b.Writer)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	runIn(t, b, "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('s', 'k', 1, 0)")
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(content), mode))
		return p
	}
	damaged := filepath.Join(dir, "damaged.db")
	openAt(t, damaged).Close()
	raw, err := os.ReadFile(damaged)
	require.NoError(t, err)
	for i := 100; i < len(raw); i++ {
		raw[i] = 0xff
	}
	file("damaged.db", string(raw), 0o600)

	for name, c := range map[string]struct {
		o    sqldb.Options
		says string
	}{
		"directory":   {sqldb.Options{Path: dir}, "is a directory"},
		"folder":      {sqldb.Options{Path: filepath.Join(dir, "no", "x.db")}, "does not exist: create it"},
		"memory":      {sqldb.Options{Path: ":memory:"}, "memory://"},
		"nameless":    {sqldb.Options{}, "has no name"},
		"read-only":   {sqldb.Options{Path: file("ro.db", "", 0o400)}, "is read-only"},
		"foreign":     {sqldb.Options{Path: file("text.db", "this is a text, and by no means an SQLite database, as is plain to see", 0o600)}, "is not an SQLite database"},
		"damaged":     {sqldb.Options{Path: damaged}, "is damaged"},
		"synchronous": {sqldb.Options{Path: filepath.Join(dir, "s.db"), Synchronous: "maybe"}, "say normal or full"},
		"verify":      {sqldb.Options{Path: filepath.Join(dir, "v.db"), Verify: true}, "does not exist"},
		"verify old":  {sqldb.Options{Path: file("old.db", "", 0o600), Verify: true}, "has schema version 0, this program needs 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sqldb.Open(t.Context(), c.o)
			require.ErrorContains(t, err, c.says)
			require.True(t, sqldb.Unusable(err))
		})
	}
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := openAt(t, path)
	runIn(t, db, "INSERT INTO leat_schema (version_id, is_applied) VALUES (2099, 1)")
	require.NoError(t, db.Close())
	for _, verify := range []bool{false, true} {
		_, err := sqldb.Open(t.Context(), sqldb.Options{Path: path, Verify: verify})
		require.ErrorContains(t, err, "has schema version 2099, newer than the 1 this program knows")
		require.True(t, sqldb.Unusable(err))
	}
}

// A database that another program has locked is waited for.
func TestLockedIsAnOutage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := openAt(t, path)
	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	other.SetMaxOpenConns(1)
	_, err = other.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	require.NoError(t, err)

	runs := 0
	insert := func(tx *sql.Tx) error {
		runs++
		_, err := tx.ExecContext(t.Context(), "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('s', 'k', 1, 0)")
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = db.InTx(ctx, insert)
	require.ErrorContains(t, err, "locked by another program")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, sqldb.Busy(err))
	require.False(t, sqldb.Unusable(err))

	done := make(chan error)
	go func() { done <- db.InTx(t.Context(), insert) }()
	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Equal(t, 1, runs)
}

func TestOpenWaitsForTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	other.SetMaxOpenConns(1)
	_, err = other.ExecContext(t.Context(), "CREATE TABLE theirs (x); BEGIN EXCLUSIVE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = sqldb.Open(ctx, sqldb.Options{Path: path})
	require.ErrorContains(t, err, "locked by another program")
	require.False(t, sqldb.Unusable(err))
	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	openAt(t, path)
}

func TestVersionSeesForeignCommits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := openAt(t, path)
	before, err := db.Version(t.Context())
	require.NoError(t, err)
	same, err := db.Version(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, same)
	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	_, err = other.ExecContext(t.Context(), "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('s', 'k', 1, 0)")
	require.NoError(t, err)
	after, err := db.Version(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, after)
}

func TestWake(t *testing.T) {
	t.Parallel()
	db := openAt(t, filepath.Join(t.TempDir(), "x.db"))
	ch, cancel := db.Subscribe("a", "b")
	db.Wake("c")
	require.Empty(t, ch)
	db.Wake("a")
	db.Wake("b")
	require.Len(t, ch, 1)
	<-ch
	cancel()
	db.Wake("a")
	require.Empty(t, ch)
}

func TestRemovedFileIsNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := openAt(t, path)
	require.NoError(t, os.Rename(path, path+".old"))
	none := func(*sql.Tx) error { return nil }
	err := db.InTx(t.Context(), none)
	require.ErrorContains(t, err, "was removed or replaced")
	require.True(t, sqldb.Unusable(err))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.True(t, sqldb.Unusable(db.InTx(t.Context(), none)))
	require.NoError(t, os.Rename(path+".old", path))
	require.NoError(t, db.InTx(t.Context(), none))
}
