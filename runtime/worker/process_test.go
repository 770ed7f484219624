package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// binary is internal/testworker, built once and never with the race detector:
// what is watched are processes.
var binary struct {
	sync.Once

	path string
	err  error
}

func testworker(t *testing.T) string {
	t.Helper()
	binary.Do(func() {
		dir, err := os.MkdirTemp("", "testworker-") //nolint:usetesting // it outlives the first test
		if err != nil {
			binary.err = err
			return
		}
		binary.path = filepath.Join(dir, "testworker")
		out, err := exec.CommandContext(context.Background(), "go", "build", "-o", binary.path, "./internal/testworker").CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, binary.err)
	return binary.path
}

// site is a folder with a database, a configuration and the handlers' traces.
type site struct {
	t    *testing.T
	dir  string
	seen *traces
}

const siteYAML = `
name: test
broker: {sqlite: {path: worker.db, lease: 1s}}
consumers:
  c:
    topic: t
    handler: {trace: {file: %q, work: %s, then: %s}}
    concurrency: 256
    prefetch: 1024
drain_timeout: 25s
http: {listen: off}
`

func newSite(t *testing.T, work, then string) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), seen: &traces{
		start: map[string]int{}, done: map[string]int{}, open: map[int]int{}, ended: map[int]int{}, attempt: map[string]string{},
	}}
	s.write("worker.yaml", fmt.Sprintf(siteYAML, s.path("trace"), work, then))
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, content string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(content), 0o600))
}

// publish publishes messages with ids m-0 to m-(n-1), without keys.
func (s *site) publish(n int) {
	s.t.Helper()
	ctx := context.Background()
	tr, err := sql.OpenSQLite(sql.Options{Path: s.path("worker.db")})
	require.NoError(s.t, err)
	require.NoError(s.t, tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: "t", Group: "test.c"}))
	p, err := tr.OpenProducer(ctx)
	require.NoError(s.t, err)
	var batch []*message.Message
	for i := range n {
		batch = append(batch, &message.Message{UUID: fmt.Sprintf("m-%d", i), Payload: []byte("{}")})
		if len(batch) == 500 || i == n-1 {
			require.NoError(s.t, p.Publish(ctx, "t", batch...))
			batch = nil
		}
	}
	require.NoError(s.t, p.Close(ctx))
	require.NoError(s.t, tr.Close(ctx))
}

// waiting is how many messages a topic holds for a group.
func (s *site) waiting(topic, group string) int {
	s.t.Helper()
	ctx := s.t.Context()
	tr, err := sql.OpenSQLite(sql.Options{Path: s.path("worker.db")})
	require.NoError(s.t, err)
	require.NoError(s.t, tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: group}))
	d, err := tr.Depth(ctx, topic, group)
	require.NoError(s.t, err)
	require.NoError(s.t, tr.Close(ctx))
	return int(d.Ready + d.Delayed + d.Held)
}

// dead is how many messages are in the consumer's dead letter.
func (s *site) dead() int { return s.waiting("t--test.c--dead", "looking") }

// traces counts the lines that handlers have written.
type traces struct {
	start, done map[string]int    // by message
	open, ended map[int]int       // runs under way, and over, by process
	attempt     map[string]string // of a message that was done
	read        int               // bytes of the file so far
}

// traces reads what has been written since it was last called.
func (s *site) traces() *traces {
	s.t.Helper()
	f, err := os.Open(s.path("trace"))
	if os.IsNotExist(err) {
		return s.seen
	}
	require.NoError(s.t, err)
	defer f.Close()
	content, err := io.ReadAll(io.NewSectionReader(f, int64(s.seen.read), 1<<40))
	require.NoError(s.t, err)
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	s.seen.read += len(content)
	for l := range strings.Lines(string(content)) {
		word := strings.Fields(l)
		require.Len(s.t, word, 4, l)
		pid, err := strconv.Atoi(word[1])
		require.NoError(s.t, err, l)
		switch id := word[2]; word[0] {
		case "start":
			s.seen.start[id]++
			s.seen.open[pid]++
		case "done":
			s.seen.done[id]++
			s.seen.open[pid]--
			s.seen.ended[pid]++
			s.seen.attempt[id] = word[3]
		}
	}
	return s.seen
}

// record is what a process has printed so far.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// process is a running worker.
type process struct {
	*exec.Cmd

	t      *testing.T
	stderr *record
	ended  chan struct{}
}

// start runs a command of the test worker; it is killed with the test.
func (s *site) start(args ...string) *process {
	s.t.Helper()
	return s.begin(s.command(args...))
}

func (s *site) command(args ...string) *exec.Cmd {
	s.t.Helper()
	c := exec.CommandContext(context.Background(), testworker(s.t), args...)
	c.Dir = s.dir
	return c
}

func (s *site) begin(c *exec.Cmd) *process {
	s.t.Helper()
	p := &process{Cmd: c, t: s.t, stderr: new(record), ended: make(chan struct{})}
	if c.Stderr == nil {
		c.Stderr = p.stderr
	}
	require.NoError(s.t, c.Start())
	go func() {
		_ = c.Wait() // the code is in ProcessState
		close(p.ended)
	}()
	s.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-p.ended
	})
	return p
}

// patience is for what has to come; nothing is measured by it.
const patience = 30 * time.Second

// exit waits for the end and returns the code, -1 after a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		_ = p.Process.Kill()
		<-p.ended
		require.Fail(p.t, "the worker did not end", p.stderr)
		return 0
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.Process.Signal(s))
}

// run runs a command to its end, which must be a good one.
func (s *site) run(args ...string) {
	s.t.Helper()
	p := s.start(args...)
	require.Zero(s.t, p.exit(), p.stderr)
}

// eventually waits for a condition.
func (s *site) eventually(p *process, what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-p.ended:
			require.Fail(s.t, "the worker has ended before: "+what, p.stderr)
		case <-late:
			require.Fail(s.t, "not in time: "+what)
		}
	}
}

// saying waits until a worker has printed a text.
func (s *site) saying(p *process, text string) {
	s.t.Helper()
	s.eventually(p, text, func() bool { return strings.Contains(p.stderr.String(), text) })
}
