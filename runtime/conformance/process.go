package conformance

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport/history"
)

// process is a running worker.
type process struct {
	*exec.Cmd

	s     *site
	name  string // in its history
	said  *output
	ended chan struct{}
}

// output is what a process has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (p *process) String() string { return p.said.String() }

// start runs a worker. It is killed with the case.
func (s *site) start(args ...string) *process {
	s.Helper()
	p := &process{s: s, name: s.name("worker"), said: new(output), ended: make(chan struct{})}
	p.Cmd = exec.CommandContext(context.WithoutCancel(s.Context()), s.exe, slices.Concat([]string{"run"}, args, s.o.flags)...) //nolint:gosec // the worker
	p.Dir, p.Stdout, p.Stderr = s.dir, p.said, p.said
	p.Env = append(os.Environ(), probe.Tied+"=1", probe.Proc+"="+p.name)
	_, err := p.StdinPipe() // ends with the process, or with ours
	require.NoError(s, err)
	require.NoError(s, p.Start())
	go func() {
		_ = p.Wait() // the code is in ProcessState
		close(p.ended)
	}()
	s.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exit waits for the end and returns the code, -1 after a signal.
func (p *process) exit() int {
	p.s.Helper()
	ctx, cancel := p.s.within()
	defer cancel()
	select {
	case <-p.ended:
		code := p.ProcessState.ExitCode()
		if code >= 0 {
			p.s.log.Add(history.Event{Proc: p.name, Kind: history.Ended})
		}
		return code
	case <-ctx.Done():
		require.FailNow(p.s, "the worker does not end", "%s", p.said)
		return 0
	}
}

func (p *process) signal(sig os.Signal) {
	p.s.Helper()
	require.NoError(p.s, p.Process.Signal(sig), "signal %v", sig)
}

// stop is SIGTERM, and a clean end.
func (p *process) stop() {
	p.s.Helper()
	p.signal(syscall.SIGTERM)
	require.Zero(p.s, p.exit(), "exit code after SIGTERM\n%s", p.said)
}

func (p *process) kill() {
	p.s.Helper()
	p.s.log.Add(history.Event{Proc: p.name, Kind: history.Killed})
	p.signal(syscall.SIGKILL)
	require.Equal(p.s, -1, p.exit(), "exit code after SIGKILL\n%s", p.said)
}

// saying waits until a worker has printed a text.
func (p *process) saying(text string) {
	p.s.Helper()
	p.s.eventually("a worker says "+text, func() bool {
		if strings.Contains(p.said.String(), text) {
			return true
		}
		require.False(p.s, p.over(), "the worker has ended:\n%s", p.said)
		return false
	}, func() any { return p.said.String() })
}

// later is long enough for a second signal not to be taken for the first.
func (p *process) later() { p.s.rest(200 * time.Millisecond) }
