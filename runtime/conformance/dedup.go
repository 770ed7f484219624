package conformance

import (
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// dedup is a policy's link on a store. Consumers with one scope share keys.
func (r *rig) dedup(store middleware.DedupStore, scope string) func(*transport.Policy) {
	r.Helper()
	link, err := middleware.Dedup(middleware.DedupOptions{Store: store, Scope: scope, Window: time.Hour, Lease: r.o.Patience})
	require.NoError(r, err)
	return func(p *transport.Policy) { p.Dedup = link }
}

// dedupRace: two workers that get the same messages at the same time handle
// each once; who comes second acks only after the first has succeeded, and
// takes over if it fails.
func dedupRace(r *rig) {
	topic, group := r.topic()
	rival := r.name("rival")
	r.declare(transport.Declaration{Topic: topic, Group: rival})
	n := r.o.scale(100, 200, 5000)
	l := newLedger(r)
	var mu sync.Mutex
	refused := map[string]chan struct{}{} // closed when somebody has to wait for a message
	var early []string
	watch := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			id := m.UUID
			out, err := next(m)
			mu.Lock()
			defer mu.Unlock()
			if w, ok := errors.AsType[*transport.Wait](err); ok && !w.Spent && refused[id] != nil {
				close(refused[id])
				delete(refused, id)
			}
			if errors.Is(err, transport.Already) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.done[id] == 0 {
					early = append(early, id)
				}
			}
			return out, err
		}
	}
	h := l.noting(func(m *message.Message) ([]*message.Message, error) {
		mu.Lock()
		other := refused[m.UUID]
		mu.Unlock()
		if other != nil { // the other worker is to come while this one is at it
			select {
			case <-other:
			case <-m.Context().Done():
				return nil, m.Context().Err()
			}
		}
		if checksum(m.UUID)%5 == 0 && len(l.runsOf(m.UUID)) == 1 {
			return nil, errAsAsked
		}
		return nil, nil
	})
	msgs := unkeyed("m", n)
	for i := range 30 { // fewer than there are slots: two workers that wait for each other would wait for ever
		refused[msgs[i*n/30].UUID] = make(chan struct{})
	}
	link := r.dedup(r.store(), r.name("scope"))
	change := func(p *transport.Policy) { p.Wrap = []message.HandlerMiddleware{watch} }
	a := r.instance().run(topic, group, h, link, change, limits(64, 4*n))
	b := r.instance().run(topic, rival, h, link, change, limits(64, 4*n))
	r.publish(topic, msgs...)
	ended := func(s runtime.Status) bool {
		return int(s.Count(transport.Handled)+s.Count(transport.Duplicate)) >= n && s.InFlight == 0
	}
	a.await("one worker is done", ended)
	b.await("the other worker is done", ended)
	a.stopped()
	b.stopped()
	l.onceEach(ids(msgs))
	require.Equal(r, n, a.count(transport.Handled)+b.count(transport.Handled), "handled by both")
	require.Equal(r, n, a.count(transport.Duplicate)+b.count(transport.Duplicate), "duplicates of both")
	require.Empty(r, early, "taken for duplicates before they were done")
	require.Empty(r, refused, "nobody had to wait for these")
	r.nothingLeft(topic, group)
	r.nothingLeft(topic, rival)
}

// dedupFailures: a message is no duplicate of its own failure, be it tried
// again or published again after its death.
func dedupFailures(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	var healed sync.Map
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		_, well := healed.Load(m.UUID)
		if !well && (m.UUID == "m-0" || transport.AttemptFrom(m.Context()).Number() == 1) {
			return nil, errAsAsked
		}
		return nil, nil
	}), r.dedup(r.store(), ""), r.attempts(2))
	msgs := unkeyed("m", r.o.scale(50, 100, 2000))
	r.publish(topic, msgs...)
	in.awaitCounts(transport.Dead, 1)
	l.awaitDone(len(msgs) - 1)
	l.onceEach(without(ids(msgs), "m-0"))

	healed.Store("m-0", true)
	r.publish(topic, msg("m-0", ""), msg("m-1", ""))
	in.awaitCounts(transport.Duplicate, 1)
	l.awaitDone(len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	in.counted(map[transport.Outcome]int{
		transport.Handled: len(msgs), transport.Retried: len(msgs), transport.Dead: 1, transport.Duplicate: 1,
	})
	r.dead(topic, group, 1)
	r.nothingLeft(topic, group)
}

// idReused: another message under the id of one that is done is not left out
// without a word, but buried; the same one is.
func idReused(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	in := r.instance().run(topic, group, l.noting(ok), r.dedup(r.store(), ""))
	r.publish(topic, msg("m", ""))
	in.awaitCounts(transport.Handled, 1)
	other := msg("m", "")
	other.Payload = message.Payload("another body")
	r.publish(topic, other, msg("m", ""))
	in.awaitCounts(transport.Dead, 1)
	in.awaitCounts(transport.Duplicate, 1)
	in.stopped()
	l.onceEach([]string{"m"})
	d := r.dead(topic, group, 1)[0]
	require.Equal(r, transport.ReasonIDReused, d.Headers.Get(transport.DeadReasonHeader))
	require.Equal(r, "another body", string(d.Payload))
	r.nothingLeft(topic, group)
}

// dedupScope: the same id in another topic or for another group is another message.
func dedupScope(r *rig) {
	one, group := r.topic()
	two, _ := r.topic()
	link := r.dedup(r.store(), "")
	l := newLedger(r)
	in := r.instance()
	in.consume("a", one, group, l.noting(ok), link, func(p *transport.Policy) { p.Topics = []string{two} })
	in.consume("b", one, r.name("other"), l.noting(ok), link)
	in.start()
	r.publish(one, msg("m", ""), msg("m", ""))
	r.publish(two, msg("m", ""), msg("m", ""))
	handled, duplicates := []int64{2, 1}, []int64{2, 1}
	r.eventually("all have ended", func() bool {
		for i, s := range in.router.Status() {
			if s.Count(transport.Handled)+s.Count(transport.Duplicate) < handled[i]+duplicates[i] {
				return false
			}
		}
		return true
	}, func() any { return in.router.Status() })
	in.stopped()
	for i, s := range in.router.Status() {
		require.Equal(r, handled[i], s.Count(transport.Handled), "handled by %q", s.Consumer)
		require.Equal(r, duplicates[i], s.Count(transport.Duplicate), "duplicates of %q", s.Consumer)
	}
}
