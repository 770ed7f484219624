package transporttest

import (
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// joinAs is join for another group of the stream's topic.
func (s *stream) joinAs(group string, change ...func(*transport.ConsumerConfig)) *member {
	s.Helper()
	return s.join(s.tr, append([]func(*transport.ConsumerConfig){func(c *transport.ConsumerConfig) { c.Group = group }}, change...)...)
}

// groups: each gets everything, whatever another does with it.
func groups(r *rig) {
	s := r.stream()
	a, b := s.join(r.tr), s.joinAs(r.name("other"))
	want := s.send("m", "k", 50)
	ds := a.receive(50)
	require.Equal(r, want, ids(ds))
	a.settle(transport.Ack, ds...)
	a.quiet()
	ds = b.receive(50)
	require.Equal(r, want, ids(ds))
	b.reopen()
	ds = b.receive(50)
	require.Equal(r, want, ids(ds))
	b.settle(transport.Ack, ds...)
	a.quiet()
	b.quiet()
}

// lateGroup: a group that comes later gets what the broker still has, and all
// that is new.
func lateGroup(r *rig) {
	s := r.stream()
	early := s.join(r.tr)
	old := s.send("old", "k", 20)
	ds := early.receive(20)
	early.settle(transport.Ack, ds[:5]...) // a broker may or may not have these still

	late := s.joinAs(r.name("late"))
	fresh := s.send("new", "k", 5)
	var came []string
	for len(came) == 0 || came[len(came)-1] != fresh[4] {
		ds := late.receive(1)
		came = append(came, ids(ds)...)
		late.settle(transport.Ack, ds...)
	}
	all := append(old, fresh...)
	require.GreaterOrEqual(r, len(came), 20)
	require.Equal(r, all[len(all)-len(came):], came)
	late.quiet()
	require.Equal(r, fresh, ids(early.receive(5)))
}

// start: latest is from now on, earliest is everything; a group that has a
// position keeps it.
func start(r *rig) {
	s := r.stream()
	at := func(st transport.Start) func(*transport.ConsumerConfig) {
		return func(c *transport.ConsumerConfig) { c.Start = st }
	}
	first := s.join(r.tr)
	s.send("old", "k", 3)
	latest := s.joinAs(r.name("latest"), at(transport.StartLatest))
	fresh := s.send("new", "k", 3)
	ds := latest.receive(3)
	require.Equal(r, fresh, ids(ds))
	latest.settle(transport.Ack, ds[0])
	latest.cfg.Start = transport.StartEarliest
	latest.reopen()
	require.Equal(r, fresh[1:], ids(latest.receive(2)))
	latest.quiet()

	first.settle(transport.Ack, first.receive(2)...)
	first.cfg.Start = transport.StartLatest
	first.reopen()
	require.Equal(r, append([]string{"old-2"}, fresh...), ids(first.receive(4)))
	first.quiet()
}

// severalTopics: one consumer reads them all.
func severalTopics(r *rig) {
	a, b := r.stream(), r.stream()
	m := a.join(r.tr, func(c *transport.ConsumerConfig) { c.Topics = []string{a.topic, b.topic} })
	want := append(a.send("a", "k", 10), b.send("b", "k", 10)...)
	ds := m.receive(20)
	require.ElementsMatch(r, want, ids(ds))
	for _, d := range ds {
		require.Equal(r, map[byte]string{'a': a.topic, 'b': b.topic}[d.ID[0]], d.Topic)
		require.Equal(r, d.Topic, d.Assignment.Topic)
		require.Equal(r, d.Partition, d.Assignment.Partition)
	}
	m.settle(transport.Ack, ds...)
	m.quiet()
}
