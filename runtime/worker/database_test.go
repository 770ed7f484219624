package worker_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnusableDatabase: a clear no ends the worker with what is wrong.
func TestUnusableDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(s *site)
		says    string
	}{
		"directory": {func(s *site) { require.NoError(s.t, os.Mkdir(s.path("worker.db"), 0o700)) }, "is a directory"},
		"corrupt":   {func(s *site) { s.write("worker.db", strings.Repeat("not a database. ", 1000)) }, "is not an SQLite database"},
		"read-only": {func(s *site) {
			s.publish(1)
			require.NoError(s.t, os.Chmod(s.path("worker.db"), 0o400))
		}, "read-only"},
		"no folder": {func(s *site) {
			s.write("worker.yaml", "broker: sqlite://none/worker.db\nconsumers: {c: {topic: t, handler: log}}\n")
		}, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "0s", "done")
			c.prepare(s)
			p := s.start("run")
			require.Equal(t, 1, p.exit(), p.stderr)
			require.Contains(t, p.stderr.String(), c.says)
			require.Contains(t, p.stderr.String(), "worker.db")
		})
	}
}

// TestLockedDatabase is waited for, and says so; a stop is not held up by it.
func TestLockedDatabase(t *testing.T) {
	t.Parallel()
	s := newSite(t, "0s", "done")
	s.publish(1)
	db, err := sql.Open("sqlite", "file:"+s.path("worker.db")+"?_txlock=immediate")
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(t, err)

	p := s.start("run")
	s.saying(p, "consumer configured")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.exit(), p.stderr)

	waiting := s.start("run", "--until-idle", "300ms")
	s.saying(waiting, "consumer configured")
	require.NoError(t, tx.Rollback())
	require.Zero(t, waiting.exit(), waiting.stderr)
	require.Equal(t, map[string]int{"m-0": 1}, s.traces().done)
}
