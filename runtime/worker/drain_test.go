package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
)

// TestSignalSentTwice: to a process and to its group, by one sender.
func TestSignalSentTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t, "300ms", "done")
	s.publish(1)
	p := s.start("run")
	s.eventually(p, "the handler runs", func() bool { return len(s.traces().start) == 1 })
	p.signal(syscall.SIGTERM)
	p.signal(os.Interrupt)
	require.Zero(t, p.exit(), p.stderr)
	require.Len(t, s.traces().done, 1)
}

// TestTermInBackOff: a wait of an hour does not hold up the stop, which is no
// attempt, and the message stays.
func TestTermInBackOff(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"keep", "overtake"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "0s", "fail")
			s.publish(3)
			p := s.start("run", "--set", "consumers.c.retry={initial_interval: 1h, max_interval: 1h, order: "+order+"}")
			s.eventually(p, "all have failed", func() bool { return len(s.traces().start) == 3 })
			p.signal(syscall.SIGTERM)
			require.Zero(t, p.exit(), p.stderr)
			require.Equal(t, 3, s.waiting("t", "test.c"))

			s.hourPasses()
			s.run("run", "--until-idle", "300ms", "--set", "consumers.c.handler.trace.then=done")
			require.Equal(t, map[string]string{"m-0": "2", "m-1": "2", "m-2": "2"}, s.traces().attempt)
			require.Zero(t, s.dead())
		})
	}
}

// hourPasses makes waiting messages due.
func (s *site) hourPasses() {
	s.t.Helper()
	db, err := sqldb.Open(context.Background(), sqldb.Options{Path: s.path("worker.db")})
	require.NoError(s.t, err)
	for _, table := range []string{"leat_attempts", "leat_delayed"} {
		_, err = db.Writer.ExecContext(s.t.Context(), "UPDATE "+table+" SET available_at = available_at - 3600000000 * 2")
		require.NoError(s.t, err)
	}
	require.NoError(s.t, db.Close())
}

// TestClosedOutput: a reader that goes away stops the demo, and leaves a
// worker alone.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	s := newSite(t, "0s", "done")
	demo := s.command("demo")
	demo.Env = append(os.Environ(), "TMPDIR="+s.dir)
	out, err := demo.StdoutPipe()
	require.NoError(t, err)
	p := s.begin(demo)
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.Equal(t, 1, p.exit(), p.stderr)
	s.demoIsGone()

	r, w, err := os.Pipe()
	require.NoError(t, err)
	run := s.command("run")
	run.Stderr = w
	p = s.begin(run)
	require.NoError(t, w.Close())
	require.NoError(t, r.Close())
	s.publish(10)
	s.eventually(p, "all are handled", func() bool { return len(s.traces().done) == 10 })
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.exit())
}

// TestDemoStops: what was published by then is finished, and the numbers add up.
func TestDemoStops(t *testing.T) {
	t.Parallel()
	s := newSite(t, "0s", "done")
	demo := s.command("demo", "--seed", "1")
	demo.Env = append(os.Environ(), "TMPDIR="+s.dir)
	out := new(record)
	demo.Stdout = out
	p := s.begin(demo)
	duplicate := regexp.MustCompile(`duplicates [1-9]`)
	s.eventually(p, "a duplicate has come", func() bool { return duplicate.MatchString(out.String()) })
	p.signal(os.Interrupt)
	require.Zero(t, p.exit(), p.stderr)
	n := lastNumbers(out.String())
	require.NotNil(t, n, out)
	require.Equal(t, n.published, n.handled+n.dead+n.duplicates)
	require.Positive(t, n.duplicates)
	s.demoIsGone()
}

// demoIsGone looks for the temporary folder of a demo.
func (s *site) demoIsGone() {
	s.t.Helper()
	left, err := filepath.Glob(s.path("leat-demo-*"))
	require.NoError(s.t, err)
	require.Empty(s.t, left)
}
