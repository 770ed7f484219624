package transport

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Unlimited as [Backoff.Attempts] means that a message is tried for ever.
const Unlimited = -1

// Backoff is how often and when a failed message is tried again.
type Backoff struct {
	Attempts        int           // the first run included; default 5, -1 for ever
	InitialInterval time.Duration // default 200ms, at least 1ms
	MaxInterval     time.Duration // default 30s
	Multiplier      float64       // default 2, at least 1
	Jitter          float64       // 0 to 1, the largest part that is added to a wait; default 0.5, and -1 for none
}

// RetryPolicy decides what an error means. It is immutable.
type RetryPolicy struct {
	attempts int
	max      time.Duration
	jitter   float64
	waits    []time.Duration // unjittered, by attempt; the last one is for all later
}

// maxWaits bounds the table: no growth is left after so many steps, unless
// the multiplier is so near to 1 that nobody could tell.
const maxWaits = 4096

// NewRetryPolicy fills the table of waits. Zero fields get their defaults;
// what cannot be meant is an error.
func NewRetryPolicy(b Backoff) (*RetryPolicy, error) {
	if b.Attempts == 0 {
		b.Attempts = 5
	}
	if b.InitialInterval == 0 {
		b.InitialInterval = 200 * time.Millisecond
	}
	if b.MaxInterval == 0 {
		b.MaxInterval = max(30*time.Second, b.InitialInterval)
	}
	if b.Multiplier == 0 {
		b.Multiplier = 2
	}
	switch b.Jitter {
	case 0:
		b.Jitter = 0.5
	case -1:
		b.Jitter = 0
	}
	switch {
	case b.Attempts < Unlimited:
		return nil, fmt.Errorf("retry attempts %d: want at least 1, or -1 for ever", b.Attempts)
	case b.InitialInterval < time.Millisecond || b.MaxInterval < b.InitialInterval:
		return nil, fmt.Errorf("retry intervals %v to %v: want 1ms ≤ initial ≤ max", b.InitialInterval, b.MaxInterval)
	case math.IsNaN(b.Multiplier) || math.IsInf(b.Multiplier, 0) || b.Multiplier < 1:
		return nil, fmt.Errorf("retry multiplier %v: want a number of at least 1", b.Multiplier)
	case math.IsNaN(b.Jitter) || b.Jitter < 0 || b.Jitter > 1:
		return nil, fmt.Errorf("retry jitter %v: want 0 to 1", b.Jitter)
	}
	p := &RetryPolicy{attempts: b.Attempts, max: b.MaxInterval, jitter: b.Jitter}
	gen := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.InitialInterval), backoff.WithMaxInterval(b.MaxInterval),
		backoff.WithMultiplier(b.Multiplier), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	for len(p.waits) < maxWaits {
		w := min(max(gen.NextBackOff(), 0), b.MaxInterval)
		p.waits = append(p.waits, w)
		if w == b.MaxInterval {
			break
		}
	}
	return p, nil
}

// Attempts is how many attempts a message has; -1 means no limit.
func (p *RetryPolicy) Attempts() int { return p.attempts }

// MaxInterval is the longest wait before jitter.
func (p *RetryPolicy) MaxInterval() time.Duration { return p.max }

// Wait is the time between failed attempt n (from 1) and the next. Jitter only
// lengthens it, so a wait is never below the table's.
func (p *RetryPolicy) Wait(n int) time.Duration {
	w := p.waits[min(max(n, 1), len(p.waits))-1]
	if p.jitter == 0 || w == 0 {
		return w
	}
	longer := w + time.Duration(rand.Float64()*p.jitter*float64(w)) //nolint:gosec // spreads load, guards nothing
	return max(w, longer)                                           // a wait of centuries overflows
}

// Decision is what follows from an error of an attempt.
type Decision struct {
	Action Action
	After  time.Duration // of ActionWait
	Spent  bool          // an attempt was used up
	Reason string        // of ActionDead: one of the Reason constants
}

// Action is the kind of a [Decision].
type Action uint8

// Values of Action.
const (
	ActionWait Action = iota + 1
	ActionDead
	ActionSkip
	ActionDuplicate
)

// Reasons a message is dead.
const (
	ReasonExhausted   = "attempts used up"
	ReasonPermanent   = "permanent error"
	ReasonUndecodable = "undecodable"
	ReasonIDReused    = "id reused"
	ReasonUnpublished = "output refused"
)

// Decide is the one place where an error of attempt n (from 1) gets its
// meaning, for links of the chain and for the engine alike.
//
// A [*Wait], [Already] or [*Exhausted] in the error stands as it is. Else the
// outermost error in the tree that has one of the methods
//
//	Permanent() bool
//	RetryAfter() time.Duration
//	Skip() bool
//
// decides; a false means nothing special. A RetryAfter is an attempt like any
// other: when attempts are used up, the message is dead.
func (p *RetryPolicy) Decide(err error, n int) Decision {
	if w, ok := errors.AsType[*Wait](err); ok {
		return Decision{Action: ActionWait, After: w.After, Spent: w.Spent}
	}
	if errors.Is(err, Already) {
		return Decision{Action: ActionDuplicate}
	}
	if _, ok := errors.AsType[*Exhausted](err); ok {
		return Decision{Action: ActionDead, Reason: ReasonExhausted, Spent: true}
	}
	wish := outermost(err)
	switch {
	case wish.permanent:
		return Decision{Action: ActionDead, Reason: wish.reason, Spent: true}
	case wish.skip:
		return Decision{Action: ActionSkip, Spent: true}
	case p.attempts != Unlimited && n >= p.attempts:
		return Decision{Action: ActionDead, Reason: ReasonExhausted, Spent: true}
	case wish.after > 0:
		return Decision{Action: ActionWait, After: wish.after, Spent: true}
	default:
		return Decision{Action: ActionWait, After: p.Wait(n), Spent: true}
	}
}

type wish struct {
	found, skip, permanent bool
	after                  time.Duration
	reason                 string
}

// outermost walks the tree as errors.As does, for all three methods at once.
func outermost(err error) wish {
	for err != nil {
		if w := wishOf(err); w.found {
			return w
		}
		//nolint:errorlint // one level at a time: that is the walk
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, sub := range e.Unwrap() {
				if w := outermost(sub); w.found {
					return w
				}
			}
			return wish{}
		default:
			return wish{}
		}
	}
	return wish{}
}

// wishOf reads the methods of one error, which may have more than one of them.
func wishOf(err error) wish {
	w := wish{reason: ReasonPermanent}
	if e, ok := err.(interface{ Permanent() bool }); ok {
		w.found, w.permanent = true, e.Permanent()
	}
	if e, ok := err.(interface{ DeadReason() string }); ok {
		w.reason = e.DeadReason()
	}
	if e, ok := err.(interface{ Skip() bool }); ok {
		w.found, w.skip = true, e.Skip()
	}
	if e, ok := err.(interface{ RetryAfter() time.Duration }); ok {
		w.found, w.after = true, e.RetryAfter()
	}
	return w
}
