package conformance

import (
	"fmt"

	"github.com/leat-io/leat/runtime/transport"
)

// testCase is one promise, or one thing that a capability promises.
type testCase struct {
	name  string
	test  func(*rig)
	needs []need
}

// need tells why a case cannot be run; empty if it can.
type need func(*rig) string

// cases is the whole suite. Those with processes come first: the others run
// beside them.
func cases() []testCase {
	processes := []need{durable, worker}
	return []testCase{
		{"N1_kill_loop", killLoop, processes},
		{"H1_sigterm", sigterm, processes},
		{"C2_crash_loop", crashLoop, processes},
		{"D3_killed_in_backoff", killedInBackoff, append([]need{attemptsKept}, processes...)},
		{"H2_second_signal", secondSignal, processes},
		{"H3_never_returns", neverReturns, processes},
		{"SPI_two_start", twoStart, processes},

		{"B4_paused_reader", pausedReader, nil},
		{"D8_herd", herd, nil},
		{"SAME_outcome", sameOutcome, nil},
		{"F1_race", dedupRace, nil},
		{"H1_drain", drainUnderLoad, nil},
		{"H5_start_stop", startAndStop, nil},

		{"A6_each_once", eachOnce, nil},
		{"B1_key_order", keyOrder, nil},
		{"B2_order_with_retries", keyOrderWithRetries, nil},
		{"B5_prefetch", prefetch, nil},
		{"B5_prefetch_bytes", prefetchBytes, []need{countsBytes}},
		{"B6_fairness", fairness, nil},
		{"C1_attempts", attempts, nil},
		{"C5_panic", panics, nil},
		{"C8_mutation", mutation, nil},
		{"C9_output_away", outputsAway, nil},
		{"D1_never_early", schedule, nil},
		{"D4_stop_in_backoff", stopInBackoff, nil},
		{"D5_shutdown_no_failure", shutdownIsNoFailure, nil},
		{"D6_permanent", permanent, nil},
		{"E1_complete", deadLetters, nil},
		{"E2_fields", deadFields, nil},
		{"E3_dead_letter_away", deadLetterAway, nil},
		{"E5_dead_letter_order", deadOrder, nil},
		{"F2_fail_then_succeed", dedupFailures, nil},
		{"F7_id_reused", idReused, nil},
		{"F8_scope", dedupScope, nil},
		{"H3_ignores_context", stubborn, nil},
		{"H6_one_breaks", oneBreaks, nil},
	}
}

// run is one case on a broker of its own.
func (c testCase) run(tb TB, s *suite) (skip string) {
	r := newRig(tb, s)
	for _, n := range c.needs {
		if why := n(r); why != "" {
			return why
		}
	}
	c.test(r)
	return ""
}

func capability(has bool, name string) string {
	if has {
		return ""
	}
	return fmt.Sprintf("capability %s is missing", name)
}

func countsBytes(r *rig) string { return capability(r.caps.ByteWindow, "ByteWindow") }

// durable: what does not outlive its process cannot be looked at from another.
func durable(r *rig) string { return capability(r.caps.Durable, "Durable") }

func attemptsKept(r *rig) string {
	return capability(r.caps.Attempts == transport.KeepDurable || r.caps.Attempts == transport.KeepAfterDelay && r.caps.DurableDelay, "Attempts: durable")
}

// worker: a durable broker is tried with processes, or says why it is not.
func worker(r *rig) string {
	for what, given := range map[string]bool{"Worker": r.o.Worker != "", "Config": r.broker.Config != ""} {
		if given {
			continue
		}
		if why := r.o.Lacks[what]; why != "" {
			return fmt.Sprintf("no %s: %s", what, why)
		}
		r.Errorf("a durable broker is tried with worker processes: set %s, or say in Options.Lacks why there is none", what)
		r.FailNow()
	}
	return ""
}
