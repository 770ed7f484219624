package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/history"
)

// site is a folder with a worker's file and its processes' histories, and a
// topic of the broker.
type site struct {
	*rig
	topic, group string
	exe          string
	dir          string

	read   *history.Dir
	events []history.Event // of processes
	seen   traces
	bound  int // messages that a kill may have run again although they were done; 0: any number
}

const siteYAML = `
name: conformance
broker: %s
http: {listen: "off"}
consumers:
  c:
    topic: %s
    group: %s
    handler: {probe: {dir: %q}}
    concurrency: 256
    prefetch: 1024
    timeout: 20s
`

// site makes one. No worker is started.
func (r *rig) site() *site {
	r.Helper()
	exe, err := r.o.binary.build(context.WithoutCancel(r.Context()), r.o.Worker)
	require.NoError(r, err)
	s := &site{rig: r, topic: r.name("orders"), group: r.name("charge"), exe: exe, dir: r.TempDir(), seen: newTraces()}
	s.read = history.NewDir(s.histories())
	require.NoError(r, os.Mkdir(s.histories(), 0o700))
	yaml := fmt.Sprintf(siteYAML, r.broker.Config, s.topic, s.group, s.histories())
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

// histories is where the processes of a site record.
func (s *site) histories() string { return filepath.Join(s.dir, "histories") }

// traces is what all processes of a site have come to so far.
type traces struct {
	started  map[string]int   // runs, by message
	done     map[string]int   // of those, without an error
	attempts map[string][]int // numbers of the runs, by message
	open     map[string]int   // runs going on, or cut off, by process
	ended    map[string]int   // runs over, by process
	failed   map[string]int   // of those, with an error
}

func newTraces() traces {
	return traces{
		started: map[string]int{}, done: map[string]int{}, attempts: map[string][]int{},
		open: map[string]int{}, ended: map[string]int{}, failed: map[string]int{},
	}
}

func (t *traces) add(e history.Event) {
	switch e.Kind { //nolint:exhaustive // what else a history has is for Check
	case history.Started:
		t.started[e.ID]++
		t.open[e.Proc]++
		t.attempts[e.ID] = append(t.attempts[e.ID], e.Attempt)
		return
	case history.Done:
		t.done[e.ID]++
	case history.Failed:
		t.failed[e.Proc]++
	default:
		return
	}
	t.open[e.Proc]--
	t.ended[e.Proc]++
}

// traces reads what has been recorded since it was last called.
func (s *site) traces() *traces {
	s.Helper()
	events, err := s.read.Next()
	require.NoError(s, err)
	s.events = append(s.events, events...)
	for _, e := range events {
		s.seen.add(e)
	}
	return &s.seen
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

// finish has one worker handle what is left until all messages are done, and
// holds the history of all processes against the rules.
func (s *site) finish(want []string, args ...string) history.Report {
	s.Helper()
	p := s.start(args...)
	s.until("all messages are done", func(t *traces) bool {
		return len(t.done) >= len(want) && !slices.ContainsFunc(want, func(id string) bool { return t.done[id] == 0 })
	}, p)
	s.exhausted(s.topic, s.group)
	p.saying("router ready") // before that, a signal ends it as any process
	p.stop()
	s.dead(s.topic, s.group, 0)
	s.nothingLeft(s.topic, s.group)
	s.traces()
	return s.judge(s.topic, s.events, history.Options{Bound: s.bound})
}

// handler sets what a worker's handler does.
func handler(work string, then probe.Then) string {
	return fmt.Sprintf("--set=consumers.c.handler.probe={work: %s, then: %s}", work, then)
}
