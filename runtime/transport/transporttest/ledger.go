package transporttest

import (
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// ledger is what several members together have received.
type ledger struct {
	r *rig

	mu      sync.Mutex
	acked   map[string]int      // how often, by id
	order   map[string][]string // acked ids by key, as they came
	holder  map[string]string   // who has an id now
	doubled []string            // held by two at once
	changed chan struct{}
}

func newLedger(r *rig) *ledger {
	return &ledger{
		r: r, acked: map[string]int{}, order: map[string][]string{},
		holder: map[string]string{}, changed: make(chan struct{}, 1),
	}
}

// take notes a hand-over.
func (l *ledger) take(m *member, ds []*transport.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		if by := l.holder[d.ID]; by != "" {
			l.doubled = append(l.doubled, d.ID+" by "+by+" and "+m.cfg.Name)
		}
		l.holder[d.ID] = m.cfg.Name
	}
	l.poke()
}

// finish settles what was taken. What is about to leave goes back, as what
// the engine has not started does.
func (l *ledger) finish(m *member, ds []*transport.Delivery) {
	batch := settlements(transport.Ack, ds...)
	l.mu.Lock()
	for i, d := range ds {
		delete(l.holder, d.ID)
		if d.Assignment.Leaving() {
			batch[i].Verdict = transport.Release
			continue
		}
		l.acked[d.ID]++
		l.order[d.Key] = append(l.order[d.Key], d.ID)
	}
	l.mu.Unlock()
	if err := m.tell(batch); err != nil {
		l.r.Errorf("settle of %s: %v", m.cfg.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poke()
}

// work has m receive, and settle at once.
func (l *ledger) work(m *member) {
	m.pump(maxLimit, func(ds []*transport.Delivery) {
		l.take(m, ds)
		l.finish(m, ds)
	})
}

func (l *ledger) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// await waits until every one of ids is acked.
func (l *ledger) await(want []string) {
	l.r.Helper()
	ctx, cancel := l.r.withinTakeover()
	defer cancel()
	for {
		l.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return l.acked[id] > 0 })
		l.mu.Unlock()
		if len(missing) == 0 {
			return
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			require.Empty(l.r, missing[:min(len(missing), 20)], "%d of %d messages did not come; the first of them", len(missing), len(want))
		}
	}
}

// once checks that each of ids was acked once, and nothing else was.
func (l *ledger) once(want []string) {
	l.r.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var wrong []string
	for id, n := range l.acked {
		if n != 1 {
			wrong = append(wrong, id)
		}
	}
	require.Empty(l.r, wrong, "came more than once")
	require.Len(l.r, l.acked, len(want), "messages came that were never published")
}

// inOrder checks the order of one key.
func (l *ledger) inOrder(key string, want []string) {
	l.r.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(l.r, want, l.order[key], "order of key %q", key)
}
