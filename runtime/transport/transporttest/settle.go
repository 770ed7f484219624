package transporttest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// settleTwice: the first word about a delivery stands.
func settleTwice(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 6)
	ds := m.receive(6)
	m.settle(transport.Ack, ds[0], ds[0])
	m.settle(transport.Ack, ds[0])
	m.settle(transport.Release, ds[0])
	if r.caps.DurableDelay {
		m.fail(transport.Delay, ds[0], 1, 0)
	}
	m.settle(transport.Release, ds[1:3]...)
	m.settle(transport.Ack, ds[1])
	m.settle(transport.Release, ds[2])
	again := m.receive(2)
	require.ElementsMatch(r, want[1:3], ids(again), "what was released, and acked afterwards")
	m.quiet()
	if r.caps.DurableDelay {
		m.fail(transport.Delay, ds[3], 1, soon)
		m.settle(transport.Ack, ds[3])
		d := m.receive(1)[0]
		require.Equal(r, want[3], d.ID, "what was delayed, and acked afterwards")
		again = append(again, d)
	} else {
		again = append(again, ds[3])
	}
	m.settle(transport.Ack, append(again, ds[4:]...)...)
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
