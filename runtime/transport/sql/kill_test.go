package sql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

const killEnv = "LEAT_TEST_KILL"

// C2: processes killed at random moments lose nothing, and what is handled
// twice was in flight at a kill.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(killEnv); dir != "" {
		killable(t, dir)
		return
	}
	const kills, window = 12, 50
	b := newBroker(t)
	p := produce(t, b.open())
	require.NoError(t, b.open().Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName}))
	dir := filepath.Dir(b.path)
	handled := func() map[string]int {
		raw, err := os.ReadFile(filepath.Join(dir, "handled"))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		m := map[string]int{}
		for id := range strings.FieldsSeq(string(raw)) {
			m[id]++
		}
		return m
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcesses$")
		cmd.Env = append(os.Environ(), killEnv+"="+dir)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test has failed
		return cmd
	}
	workers := []*exec.Cmd{start(), start()}
	n := 0
	for i := range kills {
		before := len(handled())
		publish(t, p, fmt.Sprint("round", i), 300)
		n += 300
		some := before + 1 + rand.IntN(200)
		require.Eventually(t, func() bool { return len(handled()) >= some }, waitFor, tickFor)
		w := rand.IntN(len(workers))
		require.NoError(t, workers[w].Process.Kill())
		require.Error(t, workers[w].Wait())
		workers[w] = start()
	}
	require.Eventually(t, func() bool { return b.count("leat_deliveries") == 0 }, waitFor, 50*time.Millisecond)
	for _, w := range workers {
		require.NoError(t, w.Process.Kill())
		require.Error(t, w.Wait())
	}
	twice := 0
	got := handled()
	for _, times := range got {
		twice += times - 1
	}
	require.Len(t, got, n)
	require.LessOrEqual(t, twice, kills*window)
	require.Zero(t, b.count("leat_messages"))
	var ok string
	require.NoError(t, b.raw().QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&ok))
	require.Equal(t, "ok", ok)
}

// killable handles messages until it is killed.
func killable(t *testing.T, dir string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, "handled"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	tr, err := sql.OpenSQLite(sql.Options{Path: filepath.Join(dir, "worker.db"), Lease: lease, Poll: 10 * time.Millisecond})
	require.NoError(t, err)
	c, err := tr.OpenConsumer(context.Background(), config(func(c *transport.ConsumerConfig) { c.Instance.ID = fmt.Sprint(os.Getpid()) }))
	require.NoError(t, err)
	for {
		ds, err := c.Receive(context.Background(), 50, 1<<20)
		require.NoError(t, err)
		for _, d := range ds {
			if d.Assignment.Leaving() {
				settle(t, c, transport.Release, d)
				continue
			}
			_, err := log.WriteString(d.ID + "\n")
			require.NoError(t, err)
			settle(t, c, transport.Ack, d)
		}
	}
}
