package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport/history"
)

// binary is the worker of the conformance suite, built once and never with the
// race detector: what is watched are processes.
var binary = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "kafka-worker-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path = filepath.Join(dir, "worker")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, "../../conformance/internal/testworker").CombinedOutput()
	if err != nil {
		return path, fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// binaryDir has it; empty until it is built.
var binaryDir string

// site is a folder with a worker's file, and the histories of its processes.
type site struct {
	t    *testing.T
	dir  string
	read *history.Dir
	seen []history.Event
}

const siteYAML = `
name: test
broker: {kafka: %s}
http: {listen: "off"}
consumers:
  c:
    topic: %s
    group: %s
    handler: {probe: {dir: %q}}
`

func newSite(t *testing.T, broker, topic, group string) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	histories := filepath.Join(s.dir, "histories")
	require.NoError(t, os.Mkdir(histories, 0o700))
	s.read = history.NewDir(histories)
	yaml := fmt.Sprintf(siteYAML, broker, topic, group, histories)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "worker.yaml"), []byte(yaml), 0o600))
	return s
}

// site is one on the world's topic and group.
func (w *world) site() *site {
	w.t.Helper()
	broker := fmt.Sprintf("{brokers: [%s], session_timeout: %s, metadata_age: 1s}", strings.Join(w.o.Brokers, ", "), w.o.SessionTimeout)
	return newSite(w.t, broker, w.topic, w.group)
}

// events are all that was recorded so far.
func (s *site) events() []history.Event {
	s.t.Helper()
	more, err := s.read.Next()
	require.NoError(s.t, err)
	s.seen = append(s.seen, more...)
	return s.seen
}

// count is how many events of a kind a process has recorded; "": any process.
func (s *site) count(kind history.Kind, proc string) (n int) {
	s.t.Helper()
	for _, e := range s.events() {
		if e.Kind == kind && (proc == "" || e.Proc == proc) {
			n++
		}
	}
	return n
}

// process is a running worker.
type process struct {
	*exec.Cmd

	t     *testing.T
	name  string
	out   said
	ended chan struct{}
}

// start runs a worker, which is killed with the test.
func (s *site) start(name string, args ...string) *process {
	s.t.Helper()
	exe, err := binary()
	require.NoError(s.t, err)
	p := &process{t: s.t, name: name, ended: make(chan struct{})}
	p.Cmd = exec.CommandContext(context.WithoutCancel(s.t.Context()), exe, slices.Concat([]string{"run"}, args)...)
	p.Dir, p.Stdout, p.Stderr = s.dir, &p.out, &p.out
	p.Env = append(os.Environ(), probe.Tied+"=1", probe.Proc+"="+name)
	_, err = p.StdinPipe() // ends with the process, or with ours
	require.NoError(s.t, err)
	require.NoError(s.t, p.Start())
	go func() {
		_ = p.Wait() // the code is in ProcessState
		close(p.ended)
	}()
	s.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	return p
}

// saying waits until the worker has printed a text, or has ended.
func (p *process) saying(text string) {
	p.t.Helper()
	p.until("it says "+text, func() bool { return strings.Contains(p.out.String(), text) })
}

// tells is saying, where a log may have quoted the text.
func (p *process) tells(text string) {
	p.t.Helper()
	p.until("it says "+text, func() bool { return strings.Contains(strings.ReplaceAll(p.out.String(), `\"`, `"`), text) })
}

// listening is where a worker that was started with http says that it listens.
var listening = regexp.MustCompile(`"http":"(http://[^"]+)"`)

// status is its /statusz; empty if it does not answer.
func (p *process) status() string {
	p.t.Helper()
	at := listening.FindStringSubmatch(p.out.String())
	if at == nil {
		return ""
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, at[1]+"/statusz", nil)
	require.NoError(p.t, err)
	resp, err := new(http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return string(body)
}

// until waits while the worker runs.
func (p *process) until(what string, so func() bool) {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(time.Duration(scale(90, 600)) * time.Second)
	defer deadline.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-p.ended:
			require.True(p.t, so(), "the worker has ended before %s:\n%s", what, &p.out)
			return
		case <-deadline.C:
			require.FailNow(p.t, what+" does not come", "%s", &p.out)
		}
	}
}

// exit waits for the end, and gives the code; -1 after a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-within(p.t).Done():
		require.FailNow(p.t, "the worker does not end", "%s", &p.out)
	}
	return p.ProcessState.ExitCode()
}

func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(p.t, p.exit(), "%s", &p.out)
}

func (p *process) kill() {
	p.t.Helper()
	require.NoError(p.t, p.Process.Kill())
	require.Equal(p.t, -1, p.exit(), "%s", &p.out)
}

// peak is the largest resident memory the process has had, in bytes.
func (p *process) peak() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	require.NoError(p.t, err)
	_, rest, ok := bytes.Cut(status, []byte("VmHWM:"))
	require.True(p.t, ok)
	var kib int64
	_, err = fmt.Sscan(string(rest), &kib)
	require.NoError(p.t, err)
	return kib << 10
}
