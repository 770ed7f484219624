package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport"
)

// site is a folder with a worker's file and its handlers' traces, and a
// topic of the broker.
type site struct {
	*rig
	topic, group string
	exe          string
	dir          string
	seen         traces
}

const siteYAML = `
name: conformance
broker: %s
http: {listen: "off"}
consumers:
  c:
    topic: %s
    group: %s
    handler: {probe: {file: %q}}
    concurrency: 256
    prefetch: 1024
    timeout: 20s
`

// site makes one. No worker is started.
func (r *rig) site() *site {
	r.Helper()
	exe, err := r.o.binary.build(context.WithoutCancel(r.Context()), r.o.Worker)
	require.NoError(r, err)
	s := &site{rig: r, topic: r.name("orders"), group: r.name("charge"), exe: exe, dir: r.TempDir(), seen: traces{
		started: map[string]int{}, done: map[string]int{}, attempts: map[string][]int{}, open: map[int]int{}, ended: map[int]int{},
	}}
	yaml := fmt.Sprintf(siteYAML, r.broker.Config, s.topic, s.group, s.file())
	require.NoError(r, os.WriteFile(filepath.Join(s.dir, "worker.yaml"), []byte(yaml), 0o600))
	return s
}

// declared is a site whose topic is there already.
func (r *rig) declaredSite() *site {
	r.Helper()
	s := r.site()
	r.declare(transport.Declaration{Topic: s.topic, Group: s.group})
	return s
}

func (s *site) file() string { return filepath.Join(s.dir, "traces") }

// traces is what all processes of a site have written so far.
type traces struct {
	read     int64            // bytes
	started  map[string]int   // runs, by message
	done     map[string]int   // of those, without an error
	attempts map[string][]int // numbers of the runs, by message
	open     map[int]int      // runs going on, or cut off, by process
	ended    map[int]int      // runs over, by process
}

// traces reads what has been written since it was last called.
func (s *site) traces() *traces {
	s.Helper()
	t := &s.seen
	f, err := os.Open(s.file())
	if os.IsNotExist(err) {
		return t
	}
	require.NoError(s, err)
	content, err := io.ReadAll(io.NewSectionReader(f, t.read, 1<<40))
	require.NoError(s, err)
	require.NoError(s, f.Close())
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	t.read += int64(len(content))
	lines, err := probe.Parse(string(content))
	require.NoError(s, err)
	for _, line := range lines {
		if line.Event == "start" {
			t.started[line.ID]++
			t.open[line.PID]++
			t.attempts[line.ID] = append(t.attempts[line.ID], line.Attempt)
			continue
		}
		if line.Event == "done" {
			t.done[line.ID]++
		}
		t.open[line.PID]--
		t.ended[line.PID]++
	}
	return t
}

// until waits until the traces are so, while these processes live.
func (s *site) until(what string, so func(*traces) bool, ps ...*process) {
	s.Helper()
	s.eventually(what, func() bool {
		if so(s.traces()) {
			return true
		}
		for _, p := range ps {
			require.False(s, p.over(), "a worker has ended before: %s\n%s", what, p.said)
		}
		return false
	}, func() any {
		t := s.traces()
		return fmt.Sprintf("%d messages started, %d done\n%v", len(t.started), len(t.done), ps)
	})
}

// finish has one worker handle what is left until n messages are done, and
// checks that it was these.
func (s *site) finish(want []string, args ...string) {
	s.Helper()
	p := s.start(args...)
	s.until("all messages are done", func(t *traces) bool { return len(t.done) >= len(want) }, p)
	p.stop()
	var lost []string
	for _, id := range want {
		if s.traces().done[id] == 0 {
			lost = append(lost, id)
		}
	}
	require.Empty(s, lost, "messages that were never done")
	require.Len(s, s.traces().done, len(want), "messages were done that were never published")
	s.dead(s.topic, s.group, 0)
	s.nothingLeft(s.topic, s.group)
}

// handler sets what a worker's handler does.
func handler(work string, then probe.Then) string {
	return fmt.Sprintf("--set=consumers.c.handler.probe={work: %s, then: %s}", work, then)
}
