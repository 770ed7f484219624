// Package history records what happens to messages, in one process or many,
// and checks the record against what is promised: nothing is lost or made up
// (R1, R2), nothing runs again without a reason (R4), keys keep their order
// (R5), no message runs twice at once (R6), and nothing is acked that is not
// done (R7).
//
// A [Log] is written by what stands around the parts under test ([Wrap] around
// a transport, [Handler] around a handler), each event before the step that
// it announces, so that a process that is killed has told of it. [Check] reads
// the events of all processes together.
package history

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Event is one step of one message, or of a process.
type Event struct {
	At   time.Time // in one process never earlier than the event before
	Proc string    // one incarnation of one process
	Kind Kind

	ID    string `json:",omitzero"` // of the message; one that is published twice is not for this package
	Topic string `json:",omitzero"`
	Key   string `json:",omitzero"`
	Body  string `json:",omitzero"` // see [BodyOf]

	// Hand tells the hand-overs of a process apart, from 1: a delivery, its
	// runs and its settlement have the same. 0: not known.
	Hand      int64 `json:",omitzero"`
	Partition int32 `json:",omitzero"`
	Offset    int64 `json:",omitzero"`
	Attempt   int   `json:",omitzero"`
	// Text is the error of what failed, and the name of a fault.
	Text string `json:",omitzero"`
}

// Kind is what happened.
type Kind string

// Values of Kind.
const (
	Publishing   Kind = "publishing" // is about to be published
	Published    Kind = "published"  // the broker has confirmed it
	NotPublished Kind = "refused"    // the broker has said that it has not taken it
	MaybeLost    Kind = "unknown"    // nothing is known of what was being published: neither lost nor made up

	Delivered Kind = "delivered" // handed over by the broker
	Revoked   Kind = "revoked"   // no longer ours to finish; its run is cancelled

	Started Kind = "started" // a run has begun
	Done    Kind = "done"    // it ended well
	Failed  Kind = "failed"  // it ended in an error, a panic or a wish to wait
	Skipped Kind = "skipped" // it ended in the wish not to have the message

	Acking   Kind = "acking"   // the broker is about to be told that it is done
	Acked    Kind = "acked"    // and was told
	Returned Kind = "returned" // given back, now or for later
	Buried   Kind = "buried"   // its copy is in the dead letter, confirmed

	Committed Kind = "committed" // everything below Offset of the partition is told to be done

	Ended  Kind = "ended"  // a process, cleanly
	Killed Kind = "killed" // a process; told by who kills it, before
	Fault  Kind = "fault"  // trouble outside of all processes begins
	Healed Kind = "healed" // and is over
)

// BodyOf is a payload as an [Event] has it; nil and empty differ.
func BodyOf(payload []byte) string {
	if payload == nil {
		return "nil"
	}
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:8])
}
