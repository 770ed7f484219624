package transporttest

import (
	"slices"

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
	r.all(want, ds)
	a.settle(transport.Ack, ds...)
	a.quiet()
	ds = b.receive(50)
	r.all(want, ds)
	b.reopen()
	ds = b.receive(50)
	r.all(want, ds)
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
	early.settle(transport.Ack, ds[:5]...) // the broker may or may not have these still

	late := s.joinAs(r.name("late"))
	fresh := s.send("new", "k", 5)
	var came []string
	for missing := append(ids(ds[5:]), fresh...); len(missing) > 0; {
		d := late.receive(1)[0]
		require.NotContains(r, came, d.ID, "came twice")
		came = append(came, d.ID)
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == d.ID })
		late.settle(transport.Ack, d)
	}
	require.Subset(r, append(old, fresh...), came)
	late.quiet()
	r.all(fresh, early.receive(5))
}

// start: latest is from now on, earliest is everything; a group that has a
// position keeps it.
func start(r *rig) {
	s := r.stream()
	at := func(st transport.Start) func(*transport.ConsumerConfig) {
		return func(c *transport.ConsumerConfig) { c.Start = st }
	}
	first := s.join(r.tr)
	old := s.send("old", "k", 3)
	latest := s.joinAs(r.name("latest"), at(transport.StartLatest))
	fresh := s.send("new", "k", 3)
	ds := latest.receive(3)
	r.all(fresh, ds)
	latest.settle(transport.Ack, ds[0])
	latest.cfg.Start = transport.StartEarliest
	latest.reopen()
	r.all(ids(ds[1:]), latest.receive(2))
	latest.quiet()

	left := first.ackSome(old, 2)
	first.cfg.Start = transport.StartLatest
	first.reopen()
	r.all(append(left, fresh...), first.receive(4))
	first.quiet()
}

// severalTopics: one consumer reads them all.
func severalTopics(r *rig) {
	a, b := r.stream(), r.stream()
	m := a.join(r.tr, func(c *transport.ConsumerConfig) { c.Topics = []string{a.topic, b.topic} })
	want := append(a.send("a", "k", 10), b.send("b", "k", 10)...)
	ds := m.receive(20)
	r.all(want, ds)
	for _, d := range ds {
		require.Equal(r, map[byte]string{'a': a.topic, 'b': b.topic}[d.ID[0]], d.Topic)
		require.Equal(r, d.Topic, d.Assignment.Topic)
		require.Equal(r, d.Partition, d.Assignment.Partition)
	}
	m.settle(transport.Ack, ds...)
	m.quiet()
}
