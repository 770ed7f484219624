package transporttest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

const soon = 100 * time.Millisecond

// knows checks what a delivery says of earlier failures.
func (r *rig) knows(d *transport.Delivery, n int) {
	r.Helper()
	require.Equal(r, n, d.Attempts, "failed attempts of %s", d.ID)
	if n == 0 {
		return
	}
	require.Equal(r, lastError, d.LastError, "last error of %s", d.ID)
	if !d.FirstFailure.IsZero() {
		require.WithinDuration(r, failedAt(), d.FirstFailure, time.Millisecond, "first failure of %s", d.ID)
	}
}

// delay: what is given back to come later comes again, and its attempts with
// it where they are kept; it is acked like any other.
func delay(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 1)
	d := m.receive(1)[0]
	r.knows(d, 0)
	for n := 1; n <= 3; n++ {
		m.fail(transport.Delay, d, n, soon)
		if n == 2 {
			m.reopen()
		}
		d = m.receive(1)[0]
		want := n
		if r.caps.Attempts == transport.KeepProcess {
			want = 0
		}
		r.knows(d, want)
	}
	m.settle(transport.Ack, d)
	m.quiet()
	m.reopen()
	m.quiet()
}

// recordAttempt: a noted failure ends nothing, and is known to whoever gets
// the message next where attempts are durable.
func recordAttempt(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 2)
	ds := m.receive(2)
	began := time.Now()
	m.fail(transport.Record, ds[0], 1, soon)
	m.quiet()
	m.fail(transport.Record, ds[0], 2, 3*soon)
	m.reopen()
	again := m.receive(2)
	r.all(ids(ds), again)
	if again[0].ID != ds[0].ID {
		slices.Reverse(again)
	}
	if r.caps.Attempts == transport.KeepDurable {
		r.knows(again[0], 2)
		r.notBefore(again[0], began.Add(3*soon))
	}
	r.knows(again[1], 0)
	m.fail(transport.Record, again[0], 3, time.Hour)
	m.settle(transport.Ack, again...)
	m.reopen()
	m.quiet()
}

// release: what is given back comes again, and no attempt is spent.
func release(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 5)
	for range 2 {
		m.settle(transport.Release, m.receive(5)...)
	}
	ds := m.receive(5)
	require.ElementsMatch(r, want, ids(ds))
	for _, d := range ds {
		r.knows(d, 0)
	}
	if r.caps.Attempts == transport.KeepDurable {
		m.fail(transport.Record, ds[0], 1, 0)
		m.settle(transport.Release, ds[0])
		d := m.receive(1)[0]
		require.Equal(r, ds[0].ID, d.ID)
		r.knows(d, 1)
		ds[0] = d
	}
	m.settle(transport.Ack, ds...)
	m.quiet()
}

// attemptsAfterKill: counts outlive the process, as far as that is declared.
func attemptsAfterKill(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 1)
	d := m.receive(1)[0]
	want := 0
	if r.caps.DurableDelay {
		m.fail(transport.Delay, d, 1, soon)
		d = m.receive(1)[0]
		want = 1
	}
	if r.caps.Attempts == transport.KeepDurable {
		m.fail(transport.Record, d, 2, soon)
		want = 2
	}
	m.kill()
	next := s.join(r.connect())
	r.knows(next.takeOver(1)[0], want)
}

// neverEarly: no delay ends before its time, though each has another.
func neverEarly(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.spread("m", 20)
	ds := m.receive(20)
	due := map[string]time.Time{}
	for i, d := range ds {
		after := time.Duration(i) * 20 * time.Millisecond
		due[d.ID] = time.Now().Add(after)
		m.fail(transport.Delay, d, 1, after)
	}
	other := s.send("other", "other", 1)
	for range 21 {
		d := m.receive(1)[0]
		if d.ID != other[0] {
			r.notBefore(d, due[d.ID])
		}
		m.settle(transport.Ack, d)
	}
	m.quiet()
}

// notBefore checks that a delivery that has just come is not due before t.
func (r *rig) notBefore(d *transport.Delivery, t time.Time) {
	r.Helper()
	const clocks = 5 * time.Millisecond // how far ours and the broker's may be apart
	at := time.Now()
	if d.NotBefore.After(at) {
		at = d.NotBefore
	}
	require.False(r, at.Before(t.Add(-clocks)), "%s is due %v too early", d.ID, t.Sub(at))
}
