package transporttest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// declare: again, and by many at once, it changes nothing of what is there.
func declare(r *rig) {
	d := transport.Declaration{Topic: r.name("orders"), Group: r.name("charge")}
	other := r.connect()
	ctx, cancel := r.within()
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		tr := []transport.Transport{r.tr, other}[i%2]
		wg.Go(func() {
			if err := tr.Declare(ctx, transport.TopologyDeclare, d, transport.Declaration{Topic: d.Topic}, d); err != nil {
				r.Errorf("declare, with others at it: %v", err)
			}
		})
	}
	wg.Wait()
	s := &stream{rig: r, topic: d.Topic, group: d.Group, pub: r.producer(r.tr)}
	m := s.join(r.tr)
	want := s.send("m", "k", 5)
	want = m.ackSome(want, 2)
	m.close()
	d.Start = transport.StartLatest
	require.NoError(r, r.declare(transport.TopologyDeclare, d))
	require.NoError(r, r.declare(transport.TopologyVerify, d))
	require.NoError(r, r.declare(transport.TopologyDeclare))
	m.open()
	r.all(want, m.receive(3))
	m.quiet()
}

// verify: what is missing is named and refused, and stays missing.
func verify(r *rig) {
	s := r.stream()
	topic, group := r.name("missing"), r.name("missing")
	for range 2 {
		for name, d := range map[string]transport.Declaration{
			topic: {Topic: topic},
			group: {Topic: s.topic, Group: group},
		} {
			err := r.declare(transport.TopologyVerify, d)
			require.ErrorContains(r, err, name)
			require.True(r, transport.Refused(err), "%v is not marked with Refuse", err)

			ctx, cancel := r.within()
			_, err = r.tr.OpenConsumer(ctx, transport.ConsumerConfig{
				Name: "c", Topics: []string{d.Topic}, Group: group, Topology: transport.TopologyVerify, Base: ctx, Prefetch: maxLimit, PrefetchBytes: maxBytes,
			})
			cancel()
			require.ErrorContains(r, err, name, "a consumer of what is missing")
			require.True(r, transport.Refused(err), "%v is not marked with Refuse", err)
		}
	}
	there := transport.Declaration{Topic: s.topic, Group: s.group}
	require.NoError(r, r.declare(transport.TopologyVerify, there))
	m := s.join(r.tr, func(c *transport.ConsumerConfig) { c.Topology = transport.TopologyVerify })
	require.Equal(r, s.send("m", "k", 1), ids(m.receive(1)))
}

// topologyOff: nothing is looked at and nothing made; what is there works.
func topologyOff(r *rig) {
	s := r.stream()
	missing := transport.Declaration{Topic: r.name("missing"), Group: r.name("missing")}
	require.NoError(r, r.declare(transport.TopologyOff, missing))
	require.Error(r, r.declare(transport.TopologyVerify, missing), "made under topology: off")
	m := s.join(r.tr, func(c *transport.ConsumerConfig) { c.Topology = transport.TopologyOff })
	require.Equal(r, s.send("m", "k", 1), ids(m.receive(1)))
}

// depth: what waits is counted, by what it waits for.
func depth(r *rig) {
	s := r.stream()
	if !r.caps.Depth {
		ctx, cancel := r.within()
		defer cancel()
		_, err := r.tr.Depth(ctx, s.topic, s.group)
		require.ErrorIs(r, err, transport.ErrUnsupported)
		return
	}
	began := time.Now().Add(-time.Second)
	s.depth(0, 0)
	require.Zero(r, s.now().Oldest)
	m := s.join(r.tr)
	s.spread("m", 10)
	s.depth(10, 0)
	if oldest := s.now().Oldest; !oldest.IsZero() {
		require.WithinRange(r, oldest, began, time.Now().Add(time.Second))
	}
	ds := m.receive(6)
	s.depth(10, 0)
	m.settle(transport.Ack, ds[:4]...)
	s.depth(6, 0)
	if r.caps.DurableDelay {
		m.fail(transport.Delay, ds[4], 1, time.Hour)
		s.depth(5, 1)
	}
	m.settle(transport.Release, ds[5])
	m.close()
	d := s.now()
	require.Zero(r, d.Held, "held by nobody")
	require.EqualValues(r, 6, d.Ready+d.Delayed)
}

func (s *stream) now() transport.Depth {
	s.Helper()
	ctx, cancel := s.within()
	defer cancel()
	d, err := s.tr.Depth(ctx, s.topic, s.group)
	require.NoError(s, err, "depth of group %q", s.group)
	return d
}

// depth waits until so many are ready or held, and so many delayed.
func (s *stream) depth(ready, delayed int64) {
	s.Helper()
	ctx, cancel := s.within()
	defer cancel()
	tick := time.NewTicker(s.o.Quiet / 20)
	defer tick.Stop()
	for {
		d := s.now()
		if d.Ready+d.Held == ready && d.Delayed == delayed {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Equal(s, transport.Depth{Ready: ready, Delayed: delayed}, d, "depth, where Ready and Held together count")
		}
	}
}

// unsupported: what a broker cannot do is said, and neither dropped nor done otherwise.
func unsupported(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 1)
	ds := m.receive(1)
	if !r.caps.DurableDelay {
		err := m.tell([]transport.Settlement{{Delivery: ds[0], Verdict: transport.Delay, After: time.Hour}})
		require.ErrorIs(r, err, transport.ErrUnsupported)
	}
	require.Error(r, m.tell(settlements(transport.Verdict(99), ds...)), "a verdict that is none")
	m.reopen()
	require.Equal(r, want, ids(m.receive(1)))
}
