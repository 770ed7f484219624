package sql_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// Files beside the database, one id a line. What was written outlives a killed
// process.
const (
	intendedLog  = "intended"  // before it was published
	confirmedLog = "confirmed" // after
	handledLog   = "handled"   // before it was acked
)

const (
	processEnv = "LEAT_TEST_PROCESS" // what TestProcess is to be, for which folder
	procWindow = 50                  // what a process has in flight at most
)

// process is another process that uses the broker, until it is killed.
type process struct {
	b    *broker
	role string
	cmd  *exec.Cmd
	life io.Closer // the process ends when this does, so with us
	out  bytes.Buffer
}

// start begins a process for each role: "publish"; "publish N" for N messages,
// one at a time and without a pause; "handle"; "handle named" for one whose
// instance was set.
func (b *broker) start(roles ...string) []*process {
	b.t.Helper()
	procs := make([]*process, len(roles))
	for i, role := range roles {
		procs[i] = &process{b: b, role: role}
		procs[i].start()
		b.t.Cleanup(func() { _ = procs[i].cmd.Process.Kill() }) // where the test has failed
	}
	return procs
}

func (p *process) start() {
	p.b.t.Helper()
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestProcess$")
	p.cmd.Env = append(os.Environ(), processEnv+"="+p.role+"\n"+filepath.Dir(p.b.path))
	p.out.Reset()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	life, err := p.cmd.StdinPipe()
	require.NoError(p.b.t, err)
	p.life = life
	require.NoError(p.b.t, p.cmd.Start())
}

func (p *process) kill() {
	p.b.t.Helper()
	require.NoError(p.b.t, p.cmd.Process.Kill())
	require.EqualError(p.b.t, p.cmd.Wait(), "signal: killed", "the %s process ended before: %s", p.role, &p.out)
}

// log counts the ids in one of the files.
func (b *broker) log(name string) map[string]int {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(b.path), name))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(b.t, err)
	}
	m := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		if id, ok := strings.CutSuffix(line, "\n"); ok {
			m[id]++
		}
	}
	return m
}

// TestProcess is what the processes run.
func TestProcess(t *testing.T) {
	t.Parallel()
	role, dir, _ := strings.Cut(os.Getenv(processEnv), "\n")
	if role == "" {
		t.Skip("it is for other tests to start")
	}
	go func() { // whoever started it is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	o := sql.Options{Path: filepath.Join(dir, "worker.db"), Lease: lease, Poll: 10 * time.Millisecond}
	o.Synchronous = "normal" // a killed process is no power cut
	tr, err := sql.OpenSQLite(o)
	require.NoError(t, err)
	if limit, ok := strings.CutPrefix(role, "publish"); ok {
		publishing(t, tr, dir, strings.TrimSpace(limit))
		return
	}
	id := transport.Instance{ID: fmt.Sprint(os.Getpid())}
	if role == "handle named" {
		id = transport.Instance{ID: "named", Set: true}
	}
	handling(t, tr, dir, id)
}

func appendTo(t *testing.T, dir, name string) func(ids ...string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	return func(ids ...string) {
		_, err := f.WriteString(strings.Join(ids, "\n") + "\n")
		require.NoError(t, err)
	}
}

func publishing(t *testing.T, tr *sql.Transport, dir, limit string) {
	t.Helper()
	intended, confirmed := appendTo(t, dir, intendedLog), appendTo(t, dir, confirmedLog)
	p, err := tr.OpenProducer(context.Background())
	require.NoError(t, err)
	n, longest := 0, time.Duration(0)
	publish := func(size int) {
		msgs, ids := make([]*message.Message, size), make([]string, size)
		for i := range size {
			ids[i] = fmt.Sprintf("%d-%d", os.Getpid(), n)
			msgs[i] = msg(ids[i], ids[i], "body of "+ids[i])
			n++
		}
		intended(ids...)
		began := time.Now()
		require.NoError(t, p.Publish(context.Background(), topicName, msgs...))
		longest = max(longest, time.Since(began))
		confirmed(ids...)
	}
	if limit == "" {
		for {
			publish(1 + n%40)
			select { // so that those who handle keep up
			case <-time.After(5 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
	}
	most, err := strconv.Atoi(limit)
	require.NoError(t, err)
	for range most {
		publish(1)
	}
	fmt.Println("longest publish:", longest)
	require.NoError(t, p.Close(context.Background()))
	require.NoError(t, tr.Close(context.Background()))
}

func handling(t *testing.T, tr *sql.Transport, dir string, instance transport.Instance) {
	t.Helper()
	handled := appendTo(t, dir, handledLog)
	c, err := tr.OpenConsumer(context.Background(), config(func(c *transport.ConsumerConfig) { c.Instance = instance }))
	require.NoError(t, err)
	for {
		ds, err := c.Receive(context.Background(), procWindow, 1<<20)
		require.NoError(t, err)
		for _, d := range ds {
			if d.Assignment.Leaving() {
				settle(t, c, transport.Release, d)
				continue
			}
			handled(d.ID)
			settle(t, c, transport.Ack, d)
		}
	}
}
