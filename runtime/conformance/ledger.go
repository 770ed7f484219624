package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// ledger is what all handlers of a case together have run.
type ledger struct {
	*rig

	mu      sync.Mutex
	runs    []*run            // in the order they began
	of      map[string][]*run // by message
	done    map[string]int    // runs without an error, by message
	running int
	most    int             // running at once
	busy    map[string]bool // keys
	clashes []string        // runs that began while another of their key went on
	changed chan struct{}
}

// run is one attempt as a handler sees it.
type run struct {
	id, key string
	attempt int
	began   time.Time
	ended   time.Time // zero while it goes on
	err     error
}

func newLedger(r *rig) *ledger {
	return &ledger{
		rig: r, of: map[string][]*run{}, done: map[string]int{}, busy: map[string]bool{},
		changed: make(chan struct{}, 1),
	}
}

// noting has a handler's runs noted.
func (l *ledger) noting(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) (out []*message.Message, err error) {
		a := transport.AttemptFrom(m.Context())
		n := l.begin(&run{id: a.Delivery().ID, key: a.Delivery().Key, attempt: a.Number(), began: time.Now()})
		ended := false
		defer func() { l.end(n, err, ended) }()
		out, err = h(m)
		ended = true
		return out, err
	}
}

func (l *ledger) begin(n *run) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, n)
	l.of[n.id] = append(l.of[n.id], n)
	l.running++
	l.most = max(l.most, l.running)
	if n.key != "" {
		if l.busy[n.key] {
			l.clashes = append(l.clashes, n.id)
		}
		l.busy[n.key] = true
	}
	l.poke()
	return n
}

func (l *ledger) end(n *run, err error, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.ended, n.err = time.Now(), err
	l.running--
	delete(l.busy, n.key)
	if ended && err == nil { // and neither a panic nor Goexit
		l.done[n.id]++
	}
	l.poke()
}

func (l *ledger) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// await waits until the ledger is so. It is held meanwhile.
func (l *ledger) await(what string, so func() bool) {
	l.Helper()
	ctx, cancel := l.within()
	defer cancel()
	for {
		l.mu.Lock()
		ok, runs, done, running := so(), len(l.runs), len(l.done), l.running
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			require.FailNow(l, "not in time: "+what, "%d runs so far, %d going on, %d messages done", runs, running, done)
		}
	}
}

// awaitDone waits until n messages are done.
func (l *ledger) awaitDone(n int) {
	l.Helper()
	l.await("messages done", func() bool { return len(l.done) >= n })
}

func (l *ledger) awaitRunning(n int) {
	l.Helper()
	l.await("runs going on", func() bool { return l.running >= n })
}

// runsOf are a message's runs so far.
func (l *ledger) runsOf(id string) []run {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]run, len(l.of[id]))
	for i, n := range l.of[id] {
		out[i] = *n
	}
	return out
}

// attemptsOf are the numbers of a message's attempts.
func (l *ledger) attemptsOf(id string) []int {
	var out []int
	for _, n := range l.runsOf(id) {
		out = append(out, n.attempt)
	}
	return out
}

// onceEach checks that each message was done once, that nothing else was, and
// that nothing has run but these.
func (l *ledger) onceEach(want []string) {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost, again []string
	for _, id := range want {
		switch n := l.done[id]; {
		case n == 0:
			lost = append(lost, id)
		case n > 1:
			again = append(again, id)
		}
	}
	require.Empty(l, lost, "messages that were never done")
	require.Empty(l, again, "messages that were done more than once")
	require.Len(l, l.done, len(want), "messages were done that were never published")
}

// ranOnce checks that no message has run more than once.
func (l *ledger) ranOnce() {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, runs := range l.of {
		if len(runs) > 1 {
			again := runs[1].began.Sub(runs[0].began)
			require.FailNow(l, "a message has run more than once", "%s ran %d times, the second %v after the first", id, len(runs), again)
		}
	}
}

// inOrder checks that runs of each key began in the order of publishing, one
// at a time; ids are those of keyed, but for those named.
func (l *ledger) inOrder(but ...string) {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l, l.clashes, "runs that began while another one of their key went on")
	last := map[string]string{}
	for _, n := range l.runs {
		if slices.Contains(but, n.id) {
			continue
		}
		require.LessOrEqual(l, last[n.key], n.id, "order of key %q", n.key)
		last[n.key] = n.id
	}
}

// tally counts messages, each once however often it runs.
type tally struct{ seen sync.Map }

func (t *tally) add(m *message.Message) { t.seen.Store(m.UUID, true) }

func (t *tally) count() int {
	n := 0
	t.seen.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// gate holds handlers up until it is opened, or their contexts end.
type gate struct {
	open func()
	ch   chan struct{}
}

func newGate(r *rig) *gate {
	ch := make(chan struct{})
	g := &gate{ch: ch, open: sync.OnceFunc(func() { close(ch) })}
	r.gates = append(r.gates, g)
	return g
}

func (g *gate) wait(m *message.Message) error {
	select {
	case <-g.ch:
		return nil
	case <-m.Context().Done():
		return m.Context().Err()
	}
}

// work takes so long, or until the context ends.
func work(m *message.Message, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-m.Context().Done():
		return m.Context().Err()
	}
}

func ok(*message.Message) ([]*message.Message, error) { return nil, nil }

func without(ids []string, gone ...string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(gone, id) })
}
