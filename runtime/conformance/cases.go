package conformance

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// testCase is one promise, or one thing that a capability promises.
type testCase struct {
	name  string
	test  func(*rig)
	needs []need
}

// need is what a case cannot do without.
type need struct {
	// missing tells why the case cannot be run; empty if it can.
	missing func(*rig) string
	// alone: what the case does to the broker, others would feel.
	alone bool
}

// cases is the whole suite. Those with processes come first: the others run
// beside them.
func cases() []testCase {
	processes := []need{durable(), {missing: worker}}
	return []testCase{
		{"N1_kill_loop", killLoop, processes},
		{"H1_sigterm", sigterm, processes},
		{"C2_crash_loop", crashLoop, processes},
		{"D3_killed_in_backoff", killedInBackoff, append([]need{attemptsKept()}, processes...)},
		{"H2_second_signal", secondSignal, processes},
		{"H3_never_returns", neverReturns, processes},
		{"SPI_two_start", twoStart, processes},

		{"B4_paused_reader", pausedReader, nil},
		{"D8_herd", herd, nil},
		{"SAME_outcome", sameOutcome, nil},
		{"F1_race", dedupRace, nil},
		{"H1_drain", drainUnderLoad, nil},
		{"H5_start_stop", startAndStop, nil},

		{"I1_broker_restarts", brokerRestarts, append([]need{hook("Restart")}, processes...)},
		{"I2_broker_crashes", brokerCrashes, append([]need{hook("Crash")}, processes...)},
		{"I3_frozen", frozen, []need{hook("Freeze")}},
		{"I4_link_down", linkDown, []need{hook("Link")}},
		{"I5_slow_link", slowLink, []need{hook("Link")}},
		{"I8_half_open", halfOpen, []need{hook("Link")}},
		{"I9_down_at_start", downAtStart, []need{hook("Link")}},
		{"I10_denied", denied, []need{hook("Deny")}},
		{"P1_disconnects", disconnects, []need{hook("Disconnect")}},

		{"A6_each_once", eachOnce, nil},
		{"B3_rebalanced", rebalanced, []need{groupOrder()}},
		{"M7_contention", contention, nil},
		{"B1_key_order", keyOrder, nil},
		{"B2_order_with_retries", keyOrderWithRetries, nil},
		{"B5_prefetch", prefetch, nil},
		{"B5_prefetch_bytes", prefetchBytes, []need{countsBytes()}},
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

// of makes the case one of a suite.
func (c testCase) of(s *suite) transporttest.Case {
	return transporttest.Case{
		Name:  c.name,
		Alone: slices.ContainsFunc(c.needs, func(n need) bool { return n.alone }),
		Run: func(tb TB) string {
			r := newRig(tb, s)
			for _, n := range c.needs {
				if why := n.missing(r); why != "" {
					return why
				}
			}
			c.test(r)
			return ""
		},
	}
}

// hook is the need of a field of [Broker].
func hook(name string) need {
	alone := slices.Contains([]string{"Restart", "Crash", "Freeze", "Deny", "Disconnect"}, name)
	return need{alone: alone, missing: func(r *rig) string {
		if !reflect.ValueOf(r.broker).FieldByName(name).IsZero() {
			return ""
		}
		if why := cmp.Or(r.o.Lacks[name], r.o.Lacks["*"]); why != "" {
			return "no " + name + ": " + why
		}
		return "no hook " + name
	}}
}

func capability(name string, has func(transport.Capabilities) bool) need {
	return need{missing: func(r *rig) string { return transporttest.MissingCapability(has(r.caps), name) }}
}

func countsBytes() need {
	return capability("ByteWindow", func(c transport.Capabilities) bool { return c.ByteWindow })
}

func groupOrder() need {
	return capability("KeyOrder: group", func(c transport.Capabilities) bool { return c.KeyOrder == transport.ScopeGroup })
}

// durable: what does not outlive its process cannot be looked at from another.
func durable() need {
	return capability("Durable", func(c transport.Capabilities) bool { return c.Durable })
}

func attemptsKept() need { return capability("Attempts: durable", transporttest.AttemptsOutlive) }

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
