package transporttest

import (
	"fmt"
	"reflect"

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

// cases is the whole suite. The long ones come first, so that the others run
// beside them.
func cases() []testCase {
	return []testCase{
		{"A1_no_loss", noLoss, nil},
		{"C4_slow_handler", slowHandler, nil},
		{"C2_killed", killed, needs(hook("Kill"))},
		{"C2_fenced", fenced, needs(hook("Kill"))},
		{"B3_order_after_kill", orderAfterKill, needs(groupOrder, hook("Kill"))},
		{"C1_attempts_after_kill", attemptsAfterKill, needs(attemptsOutlive, hook("Kill"))},
		{"A6_exclusive", exclusive, nil},
		{"H1_join", memberJoins, needs(groupOrder)},
		{"H1_leave", memberLeaves, nil},

		{"A2_fidelity", fidelity, nil},
		{"A3_foreign", foreign, needs(hook("Foreign"))},
		{"A4_names", names, nil},
		{"A4_refused", namesRefused, nil},
		{"A5_groups", groups, nil},
		{"A5_late_group", lateGroup, needs(history)},
		{"A5_start", start, nil},
		{"A5_topics", severalTopics, nil},
		{"A7_honest_publish", honestPublish, nil},
		{"A8_codec", codec, nil},

		{"B1_key_order", keyOrder, nil},
		{"B2_release_order", releaseOrder, needs(releaseInOrder)},
		{"B3_order_after_close", orderAfterClose, needs(groupOrder)},
		{"B4_pause", pause, nil},
		{"B5_limit", limit, nil},
		{"B5_bytes", byteWindow, needs(countsBytes)},

		{"C1_delay", delay, needs(delays)},
		{"C1_record", recordAttempt, nil},
		{"C1_release", release, nil},
		{"C3_partial_batch", partialBatch, nil},
		{"C7_settle_twice", settleTwice, nil},
		{"C7_ack_after_return", ackAfterReturn, nil},
		{"C7_settle_late", settleLate, nil},
		{"D2_never_early", neverEarly, needs(delays)},
		{"D5_context", contexts, nil},
		{"E4_dead_letter_kept", deadLetterKept, nil},

		{"G4_late_commit", lateCommit, needs(hook("PublishLater"))},
		{"G4_commit_order", commitOrder, needs(hook("PublishLater"))},
		{"G4_late_group", groupDuringCommit, needs(hook("PublishLater"))},

		{"H4_receive_ends", receiveEnds, nil},
		{"H5_no_leaks", noLeaks, nil},
		{"I1_reopen", reopen, needs(durable)},
		{"I1_restart", restart, needs(durable, hook("Restart"))},

		{"SPI_close", closing, nil},
		{"SPI_close_in_time", closeInTime, nil},
		{"SPI_coordinates", coordinates, nil},
		{"SPI_declare", declare, nil},
		{"SPI_depth", depth, nil},
		{"SPI_incomplete", incomplete, nil},
		{"SPI_unsupported", unsupported, nil},
		{"SPI_verify", verify, nil},
		{"SPI_off", topologyOff, nil},
	}
}

// run is one case on a broker of its own.
func (c testCase) run(tb TB, o *Options) (skip string) {
	r := newRig(tb, o)
	for _, n := range c.needs {
		if why := n(r); why != "" {
			return why
		}
	}
	c.test(r)
	return ""
}

func needs(n ...need) []need { return n }

func hook(name string) need {
	return func(r *rig) string {
		if !reflect.ValueOf(r.broker).FieldByName(name).IsNil() {
			return ""
		}
		if why := r.o.Lacks[name]; why != "" {
			return "no " + name + ": " + why
		}
		return "no hook " + name
	}
}

func history(r *rig) string { return capability(r.caps.History, "History") }

func capability(has bool, name string) string {
	if has {
		return ""
	}
	return fmt.Sprintf("capability %s is missing", name)
}

func groupOrder(r *rig) string {
	return capability(r.caps.KeyOrder == transport.ScopeGroup, "KeyOrder: group")
}

func attemptsOutlive(r *rig) string {
	return capability(r.caps.Attempts == transport.KeepDurable || r.caps.Attempts == transport.KeepAfterDelay && r.caps.DurableDelay, "Attempts: durable")
}

func releaseInOrder(r *rig) string { return capability(r.caps.ReleaseInOrder, "ReleaseInOrder") }
func countsBytes(r *rig) string    { return capability(r.caps.ByteWindow, "ByteWindow") }
func delays(r *rig) string         { return capability(r.caps.DurableDelay, "DurableDelay") }
func durable(r *rig) string        { return capability(r.caps.Durable, "Durable") }
