package transporttest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// noLoss: what many publish at once, two members get, each message once.
func noLoss(r *rig) {
	const publishers = 50
	each := r.scale(20, 200, 2000)
	s := r.stream()
	l := newLedger(r)
	for _, tr := range []transport.Transport{r.tr, r.connect()} {
		l.work(s.join(tr))
	}
	want := make([]string, 0, publishers*each)
	ctx, cancel := r.withinTakeover()
	defer cancel()
	var wg sync.WaitGroup
	for p := range publishers {
		for i := range each {
			want = append(want, fmt.Sprintf("%d-%d", p, i))
		}
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", p, i)
				if err := s.pub.Publish(ctx, s.topic, msg(id, fmt.Sprint(i%7))); err != nil {
					r.Errorf("publish %s: %v", id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	l.await(want)
	r.rest(r.o.Quiet)
	l.once(want)
}

// exclusive: while members join, no message is with two of them at once, and
// each is handled once.
func exclusive(r *rig) {
	const members = 4
	s := r.stream()
	l := newLedger(r)
	other := r.connect()
	var want []string
	for i := range members {
		m := s.join([]transport.Transport{r.tr, other}[i%2])
		m.pump(20, func(ds []*transport.Delivery) {
			l.take(m, ds)
			r.rest(r.o.Quiet / 100)
			l.finish(m, ds)
		})
		for j := range 4 {
			want = append(want, s.spread(fmt.Sprintf("%d-%d", i, j), r.scale(30, 100, 500))...)
			r.rest(r.o.Quiet / 10)
		}
	}
	l.await(want)
	r.rest(r.o.Quiet)
	l.once(want)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(r, l.doubled, "held by two at once")
}

// slowHandler: what is held for longer than a takeover takes stays with its
// holder, though it does not receive meanwhile and another would take over.
func slowHandler(r *rig) {
	s := r.stream()
	l := newLedger(r)
	l.work(s.join(r.connect()))
	m := s.join(r.tr)
	ds := s.share(m)
	r.rest(r.o.Takeover + r.o.Takeover/2)
	for _, d := range ds {
		require.NoError(r, d.Assignment.Context().Err(), "an assignment was lost while its member lived")
	}
	m.settle(transport.Ack, ds...)
	r.rest(r.o.Quiet)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids(ds) {
		require.Zero(r, l.acked[id], "%s was held by one member and came to another", id)
	}
}

// share publishes until m, which is not the only member, gets something.
func (s *stream) share(m *member) []*transport.Delivery {
	s.Helper()
	ctx, cancel := s.withinTakeover()
	defer cancel()
	for i := 0; ; i++ {
		s.spread(fmt.Sprint("share-", i), 32)
		short, end := context.WithTimeout(ctx, s.o.Quiet)
		ds, err := m.Receive(short, maxLimit, maxBytes)
		end()
		if err == nil {
			return ds
		}
		require.ErrorIs(s, err, context.DeadlineExceeded)
		require.NoError(s, ctx.Err(), "a second member got nothing")
	}
}

// codec: whatever a header says of a body, both arrive as they were, and what
// is behind them too.
func codec(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	for i, h := range []transport.Headers{
		{{Name: "content-encoding", Value: "gzip"}},
		{{Name: "content-encoding", Value: "no-such"}, {Name: "content-type", Value: "\x00/\xff"}},
		{{Name: "content-type", Value: "application/json"}, {Name: "leat_dead_version", Value: "999"}},
		{{Name: "_watermill_message_uuid", Value: "not the id"}},
	} {
		odd := msg(fmt.Sprint("odd-", i), "k")
		odd.Payload = []byte("\x1f\x8b\x08 cut off")
		for _, p := range h {
			odd.Metadata.Set(p.Name, p.Value)
		}
		r.publish(s.pub, s.topic, odd, msg(fmt.Sprint("good-", i), "k"))
		ds := m.receive(2)
		r.all([]string{odd.UUID, fmt.Sprint("good-", i)}, ds)
		d := ds[slices.Index(ids(ds), odd.UUID)]
		require.Equal(r, []byte(odd.Payload), d.Payload)
		require.Equal(r, map[string]string(odd.Metadata), d.Headers.Map())
		m.settle(transport.Ack, ds...)
	}
	m.quiet()
}
