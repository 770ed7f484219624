//go:build unix

package sql_test

import (
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// pause stops a process where it is, but not while it has the database
// locked: then nobody could write until it goes on.
func (p *process) pause() {
	p.b.t.Helper()
	db := p.b.raw()
	_, err := db.ExecContext(p.b.t.Context(), "PRAGMA busy_timeout = 50")
	require.NoError(p.b.t, err)
	require.Eventually(p.b.t, func() bool {
		p.stop()
		if _, err := db.ExecContext(p.b.t.Context(), "BEGIN IMMEDIATE"); err != nil {
			p.resume()
			return false
		}
		_, err := db.ExecContext(p.b.t.Context(), "ROLLBACK")
		require.NoError(p.b.t, err)
		return true
	}, waitFor, time.Millisecond)
}

// stop stops a process wherever it is, and returns when it does nothing more.
func (p *process) stop() {
	p.b.t.Helper()
	require.NoError(p.b.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(p.b.t, err)
	require.True(p.b.t, status.Stopped(), "the %s process ended: %s", p.role, &p.out)
}

// resume lets a process go on that was stopped.

func (p *process) resume() {
	p.b.t.Helper()
	require.NoError(p.b.t, p.cmd.Process.Signal(syscall.SIGCONT))
}
