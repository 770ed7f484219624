package transporttest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// settleTwice: what is acked is done with, whatever is said of it later.
func settleTwice(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 3)
	ds := m.receive(3)
	m.settle(transport.Ack, ds[0], ds[0])
	m.settle(transport.Ack, ds[0], ds[1])
	m.settle(transport.Release, ds[0])
	if r.caps.DurableDelay {
		m.fail(transport.Delay, ds[1], 1, 0)
	}
	m.fail(transport.Record, ds[1], 1, time.Hour)
	m.quiet()
	m.settle(transport.Ack, ds[2])
	m.reopen()
	m.quiet()
}

// ackAfterReturn: what was given back comes again, though it is acked after that.
func ackAfterReturn(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 3)
	ds := m.receive(3)
	m.settle(transport.Release, ds[0])
	m.settle(transport.Ack, ds[0])
	d := m.receive(1)[0]
	require.Equal(r, ds[0].ID, d.ID, "what was released")
	if r.caps.DurableDelay {
		m.fail(transport.Delay, ds[1], 1, soon)
		m.settle(transport.Ack, ds[1])
		again := m.receive(1)[0]
		require.Equal(r, ds[1].ID, again.ID, "what was delayed")
		ds[1] = again
	}
	m.settle(transport.Ack, d, ds[1], ds[2])
	m.quiet()
	m.reopen()
	m.quiet()
}

// settleLate: nothing changes for what is settled after Close, or after its
// assignment is over, whoever is told.
func settleLate(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 6)
	old := m.receive(6)
	closed := *m
	m.reopen()
	late := func(c *member) {
		for _, st := range [][]transport.Settlement{
			settlements(transport.Ack, old[0], old[1]),
			settlements(transport.Release, old[2], old[3]),
			{{Delivery: old[4], Verdict: transport.Delay, After: time.Hour, Attempts: 9}},
			{{Delivery: old[5], Verdict: transport.Record, After: time.Hour, Attempts: 9}},
		} {
			if err := c.tell(st); err != nil {
				r.Logf("settle too late: %v", err) // it may be refused or dropped
			}
		}
	}
	late(&closed)
	late(m)
	ds := m.receive(6)
	late(&closed)
	late(m)
	m.quiet()
	m.reopen()
	ds = m.receive(len(ds))
	require.ElementsMatch(r, want, ids(ds))
	for _, d := range ds {
		r.knows(d, 0)
	}
	m.settle(transport.Ack, ds...)
	m.quiet()
}
