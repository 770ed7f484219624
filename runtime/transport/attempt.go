package transport

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Attempt is one run of the chain over one delivery. It is the context of the
// message that the chain gets: values and cancellation are those of the
// delivery's [Assignment].
//
// Links and handlers reach it through [AttemptFrom] and the functions of this
// package; once the run has ended, nothing they still do to it has an effect.
type Attempt struct {
	context.Context //nolint:containedctx // an Attempt is a context

	delivery *Delivery
	consumer string
	group    string
	number   int
	first    time.Time
	msg      message.Message

	mu    sync.Mutex
	ended bool
	left  *leavings // nil until there are any: most runs leave none
}

// leavings is what a run leaves to be done after it.
type leavings struct {
	outputs []Output
	hooks   []Hook
	dead    *DeadMark
}

// Output is a message that a run wants published if it succeeds. An empty
// Topic means the consumer's publish_to.
type Output struct {
	Topic   string
	Message *message.Message
}

// Hook learns what a run came to. It is called once, after the outputs or the
// dead letter are confirmed and before the broker is told; an error is tried
// again until the drain runs out of time, so a hook that cannot succeed any
// more returns nil.
type Hook func(ctx context.Context, o Outcome) error

type attemptKey struct{}

// NewAttempt begins run number n (from 1) over d. first is when the message
// first failed, zero if it did not. The message is made anew from the received
// bytes, so that no run sees what an earlier one did to it.
func NewAttempt(d *Delivery, consumer, group string, n int, first time.Time) *Attempt {
	a := &Attempt{Context: d.Assignment.Context(), delivery: d, consumer: consumer, group: group, number: n, first: first}
	a.msg.UUID = d.ID
	a.msg.Metadata = d.Headers.Map()
	if d.Payload != nil {
		a.msg.Payload = make(message.Payload, len(d.Payload)) // make and copy: nothing is cleared before
		copy(a.msg.Payload, d.Payload)
	}
	a.msg.SetContext(a)
	return a
}

// Value finds the attempt itself for [AttemptFrom].
func (a *Attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Message is the message of this run.
func (a *Attempt) Message() *message.Message { return &a.msg }

// Delivery is what was received.
func (a *Attempt) Delivery() *Delivery { return a.delivery }

// Consumer is the name of the consumer this runs for.
func (a *Attempt) Consumer() string { return a.consumer }

// Group is the consumer's group.
func (a *Attempt) Group() string { return a.group }

// Number counts the attempts of this message, this one included.
func (a *Attempt) Number() int { return a.number }

// FirstFailure is when the message first failed; zero in a first attempt.
func (a *Attempt) FirstFailure() time.Time { return a.first }

// End closes the attempt and returns what the run has left: outputs in the
// order they were emitted, hooks in the order they were registered, and the
// dead-letter mark, nil if there is none.
func (a *Attempt) End() ([]Output, []Hook, *DeadMark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.left == nil {
		return nil, nil, nil
	}
	return a.left.outputs, a.left.hooks, a.left.dead
}

// leave adds to what the run leaves; false if it has ended.
func (a *Attempt) leave(add func(*leavings)) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	if a.left == nil {
		a.left = new(leavings)
	}
	add(a.left)
	return true
}

// AttemptFrom finds the attempt in the context of a message; nil in any other
// context, as under Watermill's own Router.
func AttemptFrom(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Emit leaves msgs to be published to topic if the run succeeds; an empty
// topic is the consumer's publish_to. It fails with [ErrUnsupported] in a
// context without an attempt, and with [ErrClosed] after the run has ended.
//
// A message with an empty UUID, or a random one (version 4), gets an id
// derived from the source, so that a repeated publish is recognised
// downstream; any other id is kept.
func Emit(ctx context.Context, topic string, msgs ...*message.Message) error {
	a := AttemptFrom(ctx)
	if a == nil {
		return ErrUnsupported
	}
	if !a.leave(func(l *leavings) {
		for _, m := range msgs {
			l.outputs = append(l.outputs, Output{Topic: topic, Message: m})
		}
	}) {
		return ErrClosed
	}
	return nil
}

// OnSettle has h told what the run came to. It returns false where there is no
// attempt, or none that still runs.
func OnSettle(ctx context.Context, h Hook) bool {
	a := AttemptFrom(ctx)
	return a != nil && a.leave(func(l *leavings) { l.hooks = append(l.hooks, h) })
}

// DeadMark says that a message has failed for good, and where its copy goes.
type DeadMark struct {
	Policy DeadLetter
	Reason string // one of the Reason constants
	Err    error
}

// MarkDead has the engine dead-letter the message, if the run returns an
// error. It returns false where there is no attempt, or none that still runs.
func MarkDead(ctx context.Context, m DeadMark) bool {
	a := AttemptFrom(ctx)
	return a != nil && a.leave(func(l *leavings) { l.dead = &m })
}
