package conformance

import (
	"fmt"
	"os"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
)

// sigterm stops a busy worker again and again: each time what runs is
// finished, nothing is run twice, and nothing is dead.
func sigterm(r *rig) {
	s := r.declaredSite()
	busy := 200
	if r.o.InFlight > 0 {
		busy = min(busy, r.o.InFlight)
	}
	rounds := r.o.scale(3, 20, 200)
	var want []string
	for round := range rounds {
		msgs := unkeyed(fmt.Sprint("m", round), 3*busy)
		want = append(want, ids(msgs)...)
		r.publish(s.topic, msgs...)
		p := s.start(handler("500ms", probe.Done))
		s.until("enough is in flight", func(t *traces) bool { return t.open[p.name] >= busy }, p)
		p.stop()
		require.Zero(r, s.traces().open[p.name]+s.traces().failed[p.name], "a stop has cut off what ran")
	}
	s.finish(want)
	for id, n := range s.traces().started {
		require.Equal(r, 1, n, "runs of %s", id)
	}
}

// secondSignal ends a worker at once, whose drain would wait; the message stays.
func secondSignal(r *rig) {
	s := r.declaredSite()
	r.publish(s.topic, msg("m", ""))
	p := s.start(handler("0s", probe.Hang))
	s.until("the handler runs", func(t *traces) bool { return len(t.started) == 1 }, p)
	p.signal(os.Interrupt)
	p.saying("draining")
	p.later()
	p.signal(syscall.SIGTERM)
	require.Equal(r, 2, p.exit(), "exit code after a second signal\n%s", p.said)
	s.finish([]string{"m"})
	require.Equal(r, []int{1, 1}, s.traces().attempts["m"])
}

// neverReturns: a handler that ignores its context is left at the drain
// timeout, with an exit code that says so; its message stays, and so do
// those that have not started.
func neverReturns(r *rig) {
	s := r.declaredSite()
	msgs := unkeyed("m", 10)
	r.publish(s.topic, msgs...)
	p := s.start(handler("0s", probe.Hang), "--set=consumers.c.concurrency=2", "--set=drain_timeout=1s", "--set=consumers.c.timeout=1s")
	s.until("handlers run", func(t *traces) bool { return len(t.started) == 2 }, p)
	p.signal(syscall.SIGTERM)
	require.Equal(r, 1, p.exit(), "exit code after a drain that took too long\n%s", p.said)
	require.Contains(r, p.said.String(), "drain timeout")
	s.finish(ids(msgs))
	for id, numbers := range s.traces().attempts {
		require.Equal(r, 1, numbers[len(numbers)-1], "an attempt of %s was counted that a stop has cut off", id)
	}
}

// twoStart: two workers that start at once on a broker that knows nothing of
// them, again and again, do not get into each other's way.
func twoStart(r *rig) {
	for range r.o.scale(3, 20, 200) {
		fresh := &rig{TB: r.TB, o: r.o, broker: r.o.Open(r.TB), caps: r.caps, log: r.log, prefix: r.name("fresh")}
		s := fresh.site()
		a, b := s.start(), s.start()
		for _, p := range []*process{a, b} {
			p.saying("router ready")
		}
		a.stop()
		b.stop()
		require.NotContains(r, a.String()+b.String(), `"level":"ERROR"`)
	}
}
