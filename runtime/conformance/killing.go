package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport"
)

// killLoop kills one of two workers at random, over and over, with work in
// flight. Whatever was published has been handled at the end; what was in
// flight may be twice.
func killLoop(r *rig) {
	s := r.declaredSite()
	const perRound = 150
	kills := r.o.scale(8, 65, 1000)
	// One worker has a name, and may take back at once what it held; of the
	// other one that is waited for.
	const held, untold = 128, 4096 // what the engine lets be in flight, and done without the broker being told
	s.bound = held + untold
	slots := []string{handler("20ms", probe.Done), "--set=consumers.c.concurrency=16", fmt.Sprintf("--set=consumers.c.prefetch=%d", held)}
	args := [2][]string{append(slots, "--instance", r.name("one")), slots}
	var want []string
	publish := func() {
		msgs := unkeyed(fmt.Sprint("m", len(want)), perRound)
		want = append(want, ids(msgs)...)
		r.publish(s.topic, msgs...)
	}
	publish()
	workers := [2]*process{s.start(args[0]...), s.start(args[1]...)}
	done, busy := 0, 0
	// A worker may run dry between the look and the kill, so there are as many
	// kills as it takes for most of them to count.
	for ; done < kills || busy < kills*8/10 && done < 3*kills; done++ {
		publish()
		i, after := rand.IntN(2), 1+rand.IntN(40) //nolint:gosec // any will do
		s.until("a worker is at work", func(t *traces) bool {
			for range workers { // the other one may have all of it
				if name := workers[i].name; t.open[name] > 0 && t.ended[name] >= after {
					return true
				}
				i = 1 - i
			}
			if len(t.done) >= len(want) { // all of it done between two looks
				publish()
			}
			return false
		}, workers[:]...)
		workers[i].kill()
		if s.traces().open[workers[i].name] > 0 {
			busy++
		}
		workers[i] = s.start(args[i]...)
	}
	for _, p := range workers {
		p.kill()
	}
	report := s.finish(want)
	require.GreaterOrEqual(r, busy, kills*8/10, "too few of %d workers were killed at work", done)
	r.Logf("%d kills, %d with work in flight: %v", done, busy, report)
}

// crashLoop: no number of crashes makes a message dead, or is taken for a
// failed attempt.
func crashLoop(r *rig) {
	s := r.declaredSite()
	r.publish(s.topic, msg("m", ""))
	name := []string{"--instance", r.name("one")}
	kills := r.o.scale(5, 30, 200)
	for n := range kills {
		p := s.start(append(name, handler("0s", probe.Hang))...)
		s.until("the handler runs", func(t *traces) bool { return t.started["m"] > n }, p)
		p.kill()
	}
	s.finish([]string{"m"}, name...)
	for _, n := range s.traces().attempts["m"] {
		require.Equal(r, 1, n, "a crash was taken for a failed attempt")
	}
}

// killedInBackoff: the failed attempts that a worker was told of when it got
// the message are known after its crash, and all of them after its stop.
func killedInBackoff(r *rig) {
	s := r.declaredSite()
	r.publish(s.topic, msg("m", "k"))
	retry := "attempts: -1, initial_interval: 50ms, max_interval: 50ms"
	if r.caps.Attempts == transport.KeepAfterDelay { // so the broker has to have the message meanwhile
		retry += ", order: overtake, max_park: 1ms"
	}
	name := r.name("one")
	seen, least, most := 0, 1, 1 // runs, and what the next one may be
	for round := range r.o.scale(4, 16, 100) {
		p := s.start("--instance", name, handler("0s", probe.Fail), "--set=consumers.c.retry={"+retry+"}")
		s.until("the handler has run three times", func(t *traces) bool { return t.started["m"] >= seen+3 }, p)
		// Where the wait is a copy of the message, a kill between that and the ack leaves both.
		killed := round%2 == 0 && r.caps.Attempts == transport.KeepDurable
		if killed {
			p.kill()
		} else {
			p.stop()
		}
		numbers := s.traces().attempts["m"]
		first, last := numbers[seen], numbers[len(numbers)-1]
		require.GreaterOrEqual(r, first, least, "attempts are forgotten: %v, of which the last process had %d", numbers, len(numbers)-seen)
		require.LessOrEqual(r, first, most, "a crash was taken for a failed attempt: %v, of which the last process had %d", numbers, len(numbers)-seen)
		seen, least, most = len(numbers), first, last+1
		if !killed {
			least = most
		}
	}
	s.finish([]string{"m"}, "--instance", name)
}
