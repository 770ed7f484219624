package transporttest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/leat-io/leat/runtime/transport"
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

// cases is the whole suite. The long ones come first, so that the others run
// beside them.
func cases() []testCase {
	return []testCase{
		{"A1_no_loss", noLoss, nil},
		{"C4_slow_handler", slowHandler, nil},
		{"C2_killed", killed, needs(hook("Kill"))},
		{"C2_fenced", fenced, needs(hook("Kill"))},
		{"B3_order_after_kill", orderAfterKill, needs(groupOrder(), hook("Kill"))},
		{"C1_attempts_after_kill", attemptsAfterKill, needs(attemptsOutlive(), hook("Kill"))},
		{"A6_exclusive", exclusive, nil},
		{"H1_join", memberJoins, needs(groupOrder())},
		{"H1_leave", memberLeaves, nil},

		{"A2_fidelity", fidelity, nil},
		{"A3_foreign", foreign, needs(hook("Foreign"))},
		{"A4_names", names, nil},
		{"A4_refused", namesRefused, nil},
		{"A5_groups", groups, nil},
		{"A5_late_group", lateGroup, needs(history())},
		{"A5_start", start, nil},
		{"A5_topics", severalTopics, nil},
		{"A7_given_up", givenUp, nil},
		{"A7_honest_publish", honestPublish, nil},
		{"A7_too_large", tooLarge, needs(hook("Oversize"))},
		{"A8_codec", codec, nil},

		{"B1_key_order", keyOrder, nil},
		{"B2_release_order", releaseOrder, needs(releaseInOrder())},
		{"B3_order_after_close", orderAfterClose, needs(groupOrder())},
		{"B4_pause", pause, nil},
		{"B5_limit", limit, nil},
		{"B5_bytes", byteWindow, needs(countsBytes())},

		{"C1_delay", delay, needs(delays())},
		{"C1_record", recordAttempt, nil},
		{"C1_release", release, nil},
		{"C3_partial_batch", partialBatch, nil},
		{"C6_resets", resets, needs(hook("Link"))},
		{"C7_settle_twice", settleTwice, nil},
		{"C7_ack_after_return", ackAfterReturn, nil},
		{"C7_settle_late", settleLate, nil},
		{"D2_never_early", neverEarly, needs(delays())},
		{"D5_context", contexts, nil},
		{"D7_clock_jumps", clockJumps, needs(hook("Jump"))},
		{"E4_dead_letter_kept", deadLetterKept, nil},

		{"G4_late_commit", lateCommit, needs(hook("PublishLater"))},
		{"G4_commit_order", commitOrder, needs(hook("PublishLater"))},
		{"G4_late_group", groupDuringCommit, needs(hook("PublishLater"))},
		{"G4_late_groups", lateGroups, needs(hook("PublishLater"))},
		{"G4_late_order", lateOrder, needs(hook("PublishLater"))},
		{"G4_late_under_load", lateUnderLoad, needs(hook("PublishLater"))},

		{"H4_receive_ends", receiveEnds, nil},
		{"H5_no_leaks", noLeaks, nil},
		{"I1_reopen", reopen, needs(durable())},
		{"I1_restart", restart, needs(durable(), hook("Restart"))},
		{"I2_crash", crash, needs(durable(), hook("Crash"))},
		{"I3_frozen", frozen, needs(hook("Freeze"))},
		{"I4_cut", cutLink, needs(hook("Link"))},
		{"I5_slow", slowLink, needs(hook("Link"))},
		{"I8_half_open", halfOpen, needs(hook("Link"))},
		{"I9_unreachable", unreachable, needs(hook("Link"))},
		{"I10_denied", denied, needs(hook("Deny"))},
		{"M6_idle", idle, needs(hook("Idle"))},
		{"P1_disconnected", disconnected, needs(hook("Disconnect"))},

		{"SPI_close", closing, nil},
		{"SPI_close_in_time", closeInTime, nil},
		{"SPI_coordinates", coordinates, nil},
		{"SPI_declare", declare, nil},
		{"SPI_depth", depth, nil},
		{"SPI_incomplete", incomplete, nil},
		{"SPI_unsupported", unsupported, nil},
		{"SPI_redelivered", redelivered, nil},
		{"SPI_verify", verify, nil},
		{"SPI_off", topologyOff, nil},
	}
}

// of makes the case one of a suite.
func (c testCase) of(o *Options) Case {
	return Case{
		Name:  c.name,
		Alone: slices.ContainsFunc(c.needs, func(n need) bool { return n.alone }),
		Run: func(tb TB) string {
			r := newRig(tb, o)
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

func needs(n ...need) []need { return n }

// hook is the need of a field of [Broker].
func hook(name string) need {
	alone := slices.Contains([]string{"Restart", "Crash", "Freeze", "Deny", "Disconnect", "Jump"}, name)
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

// capability is the need of something in [transport.Capabilities].
func capability(name string, has func(transport.Capabilities) bool) need {
	return need{missing: func(r *rig) string { return MissingCapability(has(r.caps), name) }}
}

// MissingCapability says why a case is skipped that needs a capability; empty
// if the broker has it.
func MissingCapability(has bool, name string) string {
	if has {
		return ""
	}
	return fmt.Sprintf("capability %s is missing", name)
}

func history() need {
	return capability("History", func(c transport.Capabilities) bool { return c.History })
}

func groupOrder() need {
	return capability("KeyOrder: group", func(c transport.Capabilities) bool { return c.KeyOrder == transport.ScopeGroup })
}

func attemptsOutlive() need { return capability("Attempts: durable", AttemptsOutlive) }

// AttemptsOutlive tells whether counts of failed attempts can survive a crash.
func AttemptsOutlive(c transport.Capabilities) bool {
	return c.Attempts == transport.KeepDurable || c.Attempts == transport.KeepAfterDelay && c.DurableDelay
}

func releaseInOrder() need {
	return capability("ReleaseInOrder", func(c transport.Capabilities) bool { return c.ReleaseInOrder })
}

func countsBytes() need {
	return capability("ByteWindow", func(c transport.Capabilities) bool { return c.ByteWindow })
}

func delays() need {
	return capability("DurableDelay", func(c transport.Capabilities) bool { return c.DurableDelay })
}

func durable() need {
	return capability("Durable", func(c transport.Capabilities) bool { return c.Durable })
}
