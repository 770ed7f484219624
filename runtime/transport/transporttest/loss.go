package transporttest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// killed: all that a killed member had not settled comes again, to another,
// within the time it says.
func killed(r *rig) {
	s := r.stream()
	a := s.join(r.tr)
	want := s.send("m", "k", 20)
	want = append(a.ackSome(want, 5), s.spread("n", 20)...)
	a.receive(25) // 10 of them are left with the broker
	a.kill()
	b := s.join(r.connect())
	ds := b.takeOver(35)
	require.ElementsMatch(r, want, ids(ds))
	b.settle(transport.Ack, ds...)
	b.quiet()
}

// fenced: a member that comes back from the dead changes nothing of what
// others have taken over.
func fenced(r *rig) {
	s := r.stream()
	a := s.join(r.tr)
	want := s.send("m", "k", 8)
	held := a.receive(8)
	a.kill()
	b := s.join(r.connect())
	ds := b.takeOver(8)
	r.all(want, ds)
	at := slices.Index(ids(ds), held[0].ID)

	for _, st := range [][]transport.Settlement{
		settlements(transport.Ack, held[0], held[1]),
		settlements(transport.Release, held[2], held[3]),
		{{Delivery: held[4], Verdict: transport.Delay, After: time.Hour, Attempts: 9}},
		{{Delivery: held[5], Verdict: transport.Record, After: time.Hour, Attempts: 9}},
	} {
		if err := a.tell(st); err != nil {
			r.Logf("settle after the loss: %v", err) // it may be refused or dropped
		}
	}
	b.quiet()
	b.settle(transport.Ack, ds[at])
	b.reopen()
	again := b.receive(7)
	r.all(slices.DeleteFunc(want, func(id string) bool { return id == held[0].ID }), again)
	for _, d := range again {
		r.knows(d, 0)
	}
	b.settle(transport.Ack, again...)
	b.quiet()
}

// partialBatch: Close gives back what is not settled, and nothing else.
func partialBatch(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 20)
	ds := m.receive(20)
	m.settle(transport.Ack, ds[:7]...)
	m.reopen()
	ds = m.receive(13)
	if r.caps.KeyOrder == transport.ScopeGroup {
		require.Equal(r, want[7:], ids(ds))
	}
	require.ElementsMatch(r, want[7:], ids(ds))
	for _, d := range ds {
		r.knows(d, 0)
	}
	m.quiet()

	acked := []*transport.Delivery{ds[0], ds[3], ds[4], ds[9]}
	left := slices.DeleteFunc(slices.Clone(ds), func(d *transport.Delivery) bool { return slices.Contains(acked, d) })
	m.settle(transport.Ack, acked...)
	m.reopen()
	if r.caps.ReleaseInOrder { // else what was acked ahead of the others may come again
		require.Equal(r, ids(left), ids(m.receive(len(left))))
		m.quiet()
		return
	}
	missing := ids(left)
	for len(missing) > 0 {
		d := m.receive(1)[0]
		require.NotEqual(r, ds[0].ID, d.ID)
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == d.ID })
	}
}

// reopen: what is durable is there for a process that begins when no other runs.
func reopen(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 10)
	want = m.ackSome(want, 4)
	m.close()
	ctx, cancel := r.within()
	defer cancel()
	require.NoError(r, s.pub.Close(ctx))
	require.NoError(r, r.tr.Close(ctx))
	next := s.join(r.connect())
	r.all(want, next.receive(6))
	next.quiet()
}

// restart is the same for the broker.
func restart(r *rig) { r.comesBack(r.broker.Restart) }

// crash is restart without a goodbye.
func crash(r *rig) { r.comesBack(r.broker.Crash) }

// comesBack checks that the broker has after end what it had before.
func (r *rig) comesBack(end func(TB)) {
	r.Helper()
	r.hurt = true
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 10)
	want = m.ackSome(want, 4)
	if !r.caps.StableCoordinates { // then acks have no answer, and may still be under way
		r.rest(r.o.Quiet)
	}
	end(r.TB)
	m.gone = true
	ctx, cancel := r.withinTakeover()
	defer cancel()
	_ = m.Close(ctx) // its connection is gone
	next := s.join(r.connect())
	ds := next.takeOver(6)
	r.all(want, ds)
	next.settle(transport.Ack, ds...)
	next.quiet()
}
