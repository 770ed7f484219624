package transporttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// cutLink: a link that breaks again and again loses nothing, and all goes on
// when it is back.
func cutLink(r *rig) {
	h := r.stream().hardy()
	want := h.insist("first", 20)
	for i := range r.scale(2, 4, 50) {
		h.await(want)
		want = append(want, h.during(fmt.Sprint("m-", i), func() {
			r.broker.Link.Cut()
			r.rest(r.o.Quiet)
			r.broker.Link.Heal()
		})...)
	}
	h.finished(want)
}

// slowLink: one on which everything takes its time is no trouble.
func slowLink(r *rig) {
	h := r.stream().hardy()
	want := h.insist("before", 20)
	h.await(want)
	r.broker.Link.Latency(r.o.Quiet / 4)
	want = append(want, h.during("m", func() {})...)
	h.await(want)
	r.broker.Link.Latency(0)
	h.finished(want)
}

// resets: connections that are reset in the middle of whatever is being said
// lose nothing.
func resets(r *rig) {
	h := r.stream().hardy()
	var want []string
	for i := range r.scale(4, 12, 200) {
		dir, n := Direction(i%2), 1+rand.IntN(3000) //nolint:gosec // any will do
		r.broker.Link.LimitThenReset(dir, n)
		want = append(want, h.during(fmt.Sprint("m-", i), func() {})...)
		h.await(want)
	}
	h.finished(want)
}

// disconnected: the same for connections that the broker ends.
func disconnected(r *rig) {
	h := r.stream().hardy()
	var want []string
	for i := range r.scale(3, 8, 120) {
		want = append(want, h.during(fmt.Sprint("m-", i), func() {
			for range 3 {
				r.rest(r.o.Quiet / 4)
				r.broker.Disconnect(r.TB)
			}
		})...)
	}
	h.finished(want)
}

// halfOpen: what is said to nobody ends in its time, and is made good later.
func halfOpen(r *rig) {
	r.unanswered(func() func() {
		r.broker.Link.Stall()
		return r.broker.Link.Resume
	})
}

// frozen: the same for a broker that is stopped where it is.
func frozen(r *rig) { r.unanswered(func() func() { return r.broker.Freeze(r.TB) }) }

func (r *rig) unanswered(stall func() (resume func())) {
	s := r.stream()
	h := s.hardy()
	want := h.insist("before", 20)
	h.await(want)
	// Another group, so that it holds what it has.
	m := s.joinAs(r.name("other"), func(c *transport.ConsumerConfig) { c.Start = transport.StartLatest })
	want = append(want, h.insist("held", 4)...)
	h.await(want)
	ds := m.receive(4)
	other := r.connect()
	m.gone = true

	resume := stall()
	ended := false
	r.Cleanup(func() {
		if !ended { // a failure
			resume()
		}
	})
	r.inTime("Publish", func(ctx context.Context) error { return s.pub.Publish(ctx, s.topic, msg("stalled", "stalled")) }, true)
	r.inTime("Settle", func(ctx context.Context) error { return m.Settle(ctx, settlements(transport.Ack, ds[:2]...)) }, false)
	r.inTime("Receive", func(ctx context.Context) error {
		_, err := m.Receive(ctx, 10, maxBytes)
		return err
	}, true)
	r.inTime("OpenConsumer", func(ctx context.Context) error {
		c, err := other.OpenConsumer(ctx, m.cfg)
		if err == nil {
			_ = c.Close(ctx) // the test has failed
		}
		return err
	}, true)
	r.inTime("Close", m.Close, false)
	want = append(want, h.during("after", func() {
		resume()
		ended = true
	})...)
	h.mu.Lock()
	h.unsure["stalled"] = true
	h.mu.Unlock()
	h.await(want)
	r.rest(r.o.Quiet) // what was published without an answer may come, or not
	if h.mu.Lock(); h.came["stalled"] > 0 {
		want = append(want, "stalled")
	}
	h.mu.Unlock()
	h.finished(want)
}

// inTime checks that a call ends soon after its context, and that an error
// of it is no refusal.
func (r *rig) inTime(what string, call func(context.Context) error, fails bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*r.o.Quiet)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if fails {
			require.Error(r, err, "%s, while nobody answers", what)
		}
		require.False(r, transport.Refused(err), "%s takes silence for a no: %v", what, err)
	case <-time.After(r.o.Patience):
		require.FailNow(r, what+" goes on though its context has ended")
	}
}

// unreachable: a broker that is not there is no refusal, and used when it comes.
func unreachable(r *rig) {
	r.hurt = true
	s := r.stream()
	want := s.send("m", "k", 3)
	r.broker.Link.Cut()
	tr := r.connect()
	for what, call := range map[string]func(context.Context) error{
		"Declare": func(ctx context.Context) error {
			return tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: s.topic, Group: s.group})
		},
		"OpenConsumer": func(ctx context.Context) error {
			_, err := tr.OpenConsumer(ctx, transport.ConsumerConfig{
				Name: "c", Topics: []string{s.topic}, Group: s.group, Topology: transport.TopologyDeclare, Base: r.Context(), Prefetch: 10, PrefetchBytes: maxBytes,
			})
			return err
		},
		"OpenProducer and Publish": func(ctx context.Context) error {
			p, err := tr.OpenProducer(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = p.Close(ctx) }() // what it opened is not there
			return p.Publish(ctx, s.topic, msg("lost", "k"))
		},
	} {
		r.inTime(what, call, true)
	}
	r.broker.Link.Heal()
	m := s.join(tr)
	ds := m.takeOver(3)
	require.Equal(r, want, ids(ds))
	m.settle(transport.Ack, ds...)
	m.quiet()
}

// denied: credentials that are taken away and given back lose nothing.
func denied(r *rig) {
	h := r.stream().hardy()
	want := h.insist("before", 20)
	h.await(want)
	want = append(want, h.during("m", func() {
		allow := r.broker.Deny(r.TB)
		r.rest(2 * r.o.Quiet)
		ctx, cancel := r.within()
		defer cancel()
		other := r.connect()
		_, err := other.OpenConsumer(ctx, h.m.cfg)
		allow()
		require.Error(r, err, "a consumer opens without a right")
	})...)
	h.finished(want)
}

// idle: a connection that the broker has ended for want of use is no trouble.
func idle(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	for i := range 2 {
		want := s.send(fmt.Sprint("m-", i), "k", 3)
		ds := m.receive(3)
		require.Equal(r, want, ids(ds))
		r.rest(2 * r.broker.Idle)
		m.settle(transport.Ack, ds...)
		m.quiet()
	}
	m.reopen()
	m.quiet()
}

// clockJumps: when the broker's clock is set, nothing is lost and nothing
// stops; a lease that looks over moves what it guards, and no more.
func clockJumps(r *rig) {
	h := r.stream().hardy()
	var want []string
	for i, d := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		want = append(want, h.during(fmt.Sprint("m-", i), func() { r.broker.Jump(r.TB, d) })...)
		h.await(want)
	}
	h.finished(want)
}
