package worker_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKillLoop kills one of two workers at random, over and over. Whatever was
// published has been handled at the end; what was in flight may be twice.
func TestKillLoop(t *testing.T) {
	t.Parallel()
	s := newSite(t, "20ms", "done")
	kills, perRound := scaled(65, 8), 150
	// One worker has a name, and takes back at once what it held; the other
	// is waited for until its leases end.
	args := [2][]string{{"run", "--set", "consumers.c.concurrency=16", "--instance", "one"}, {"run", "--set", "consumers.c.concurrency=16"}}
	busy, published := 0, 0
	publish := func() {
		s.publish(fmt.Sprintf("m%d", published), perRound)
		published++
	}
	publish()
	workers := [2]*process{s.start(args[0]...), s.start(args[1]...)}
	for range kills {
		publish()
		i, after := rand.IntN(2), 1+rand.IntN(40)
		s.eventually(workers[i], "a worker is at work", func() bool {
			at := s.traces()
			for range workers { // the other one may have all of it
				if pid := workers[i].Process.Pid; at.open[pid] > 0 && at.ended[pid] >= after {
					return true
				}
				i = 1 - i
			}
			return false
		})
		p := workers[i]
		p.kill()
		if s.traces().open[p.Process.Pid] > 0 {
			busy++
		}
		workers[i] = s.start(args[i]...)
	}
	for _, p := range workers {
		p.kill()
	}
	s.run("run", "--until-idle", "2s")

	done := s.traces().done
	for round := range published {
		for i := range perRound {
			require.NotZero(t, done[fmt.Sprintf("m%d-%d", round, i)], "message %d of round %d is lost", i, round)
		}
	}
	require.Zero(t, s.dead(), "a crash is no failure")
	require.Greater(t, busy, kills*8/10, "too few workers were killed at work")
	again := 0
	for _, n := range done {
		again += n - 1
	}
	t.Logf("%d kills, %d with work in flight; %d messages, %d handled more than once", kills, busy, published*perRound, again)
}

// TestCrashLoopKeepsMessage: no number of crashes makes a message dead.
func TestCrashLoopKeepsMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t, "0s", "hang")
	s.publish("m", 1)
	kills := scaled(30, 5)
	for n := range kills {
		p := s.start("run", "--instance", "one")
		s.eventually(p, "the handler runs", func() bool { return s.traces().start["m-0"] == n+1 })
		p.kill()
	}
	require.Equal(t, 1, s.waiting("t", "test.c"))
	s.run("run", "--until-idle", "300ms", "--instance", "one", "--set", "consumers.c.handler.trace.then=done")
	require.Equal(t, map[string]int{"m-0": 1}, s.traces().done)
	require.Equal(t, "1", s.traces().attempt["m-0"], "a crash was taken for a failed attempt")
	require.Zero(t, s.dead())
}

// TestTwoStartOnFreshFile: migrations of two workers do not meet.
func TestTwoStartOnFreshFile(t *testing.T) {
	t.Parallel()
	for range scaled(100, 10) {
		s := newSite(t, "0s", "done")
		a, b := s.start("run", "--until-idle", "20ms"), s.start("run", "--until-idle", "20ms")
		require.Zero(t, a.exit(), a.stderr)
		require.Zero(t, b.exit(), b.stderr)
		require.NotContains(t, a.stderr.String()+b.stderr.String(), `"level":"ERROR"`)
	}
}
