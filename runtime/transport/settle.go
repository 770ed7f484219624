package transport

import "time"

// Settlement is what one delivery came to, as the broker is to be told.
type Settlement struct {
	Delivery *Delivery
	Verdict  Verdict

	// After is the wait of Delay and Record.
	After time.Duration
	// Attempts, FirstFailure and LastError are the state that Delay and
	// Record leave with the message, for brokers that can keep it.
	Attempts     int
	FirstFailure time.Time
	LastError    string
}

// Verdict is what the broker is to do with a delivery.
type Verdict uint8

// Values of Verdict.
const (
	// Ack: done with, whether handled, skipped, a duplicate or safely dead-lettered.
	Ack Verdict = iota + 1
	// Delay gives the delivery back, to come again no earlier than After.
	Delay
	// Release gives the delivery back untouched: its order is kept where
	// the broker can, no attempt is spent.
	Release
	// Record keeps the delivery with us and only notes a failed attempt and
	// its wait, so that whoever gets the message after a crash knows of them.
	// It does not end the delivery, and may be dropped where attempts are not durable.
	Record
)

// String gives the verdict's name in logs.
func (v Verdict) String() string {
	switch v {
	case Ack:
		return "ack"
	case Delay:
		return "delay"
	case Release:
		return "release"
	case Record:
		return "record"
	default:
		return "unknown"
	}
}

// Outcome is what one run of the chain came to.
type Outcome uint8

// Values of Outcome.
const (
	Handled     Outcome = iota + 1 // the handler succeeded, and its outputs are confirmed
	Duplicate                      // done before; acked unrun
	Waiting                        // somebody else is at it; tried again soon
	Skipped                        // the handler asked to skip it; acked
	Retried                        // failed, and will be tried again
	Dead                           // failed for good; its copy is confirmed, or it was dropped
	Interrupted                    // shutdown, revocation or a lost connection; nothing spent
)

var outcomeNames = [...]string{"", "handled", "duplicate", "waiting", "skipped", "retried", "dead", "interrupted"}

// String gives the outcome's name in logs, metrics and status.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}
