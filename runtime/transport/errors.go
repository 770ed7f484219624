package transport

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Causes of a cancelled delivery context. Neither is a failure: no attempt is
// spent and nothing is dead-lettered.
var (
	// ErrRevoked: the partition or connection is no longer ours.
	ErrRevoked = errors.New("delivery revoked")
	// ErrShutdown: the worker stops and could not wait any longer.
	ErrShutdown = errors.New("worker shutting down")
)

// ErrFenced says that another process runs under the same instance name. It ends the
// worker whenever it comes, since the two would take from each other for ever.
var ErrFenced = errors.New("another process runs under the same instance name")

// ErrUnsupported is returned where a capability is missing.
var ErrUnsupported = errors.New("not supported by this transport")

// ErrClosed is returned by what was closed.
var ErrClosed = errors.New("closed")

// NeedBytes is returned by Receive when the next message is larger than the
// bytes asked for: that many are needed.
type NeedBytes int64 //nolint:errname // a request

func (n NeedBytes) Error() string { return fmt.Sprintf("next message has %d bytes", int64(n)) }

// Refuse marks an error that will not go away by waiting: a wrong password, a
// missing right, something declared otherwise. A worker that gets one before it
// was ever ready exits with it.
func Refuse(err error) error {
	if err == nil {
		return nil
	}
	return &refused{err}
}

// Refused tells whether an error is marked so.
func Refused(err error) bool {
	var r *refused
	return errors.As(err, &r)
}

type refused struct{ error }

func (r *refused) Unwrap() error { return r.error }

// PublishError says which messages of one Publish failed; the others are confirmed.
type PublishError struct {
	Topic  string
	Failed []PublishFailure
}

// PublishFailure is one message that was not published.
type PublishFailure struct {
	Index int // within the messages given to Publish
	Err   error
	// Permanent: publishing it again cannot help (too large, no right).
	Permanent bool
}

func (e *PublishError) Error() string {
	if len(e.Failed) == 0 {
		return fmt.Sprintf("publish to %q", e.Topic)
	}
	return fmt.Sprintf("publish to %q: %d failed, the first with: %v", e.Topic, len(e.Failed), e.Failed[0].Err)
}

// Unwrap gives the failures' errors.
func (e *PublishError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}

// Wait asks for another attempt of the same message after a while. A link of
// the chain returns it at once and holds nothing while the time runs; the
// engine parks the delivery. Links pass it through untouched.
type Wait struct { //nolint:errname // a request
	After time.Duration
	// Spent: the run that ended was an attempt and failed. Else none is counted.
	Spent bool
	Err   error // why; may be nil
}

func (w *Wait) Error() string {
	if w.Err == nil {
		return "wait " + w.After.String()
	}
	return "wait " + w.After.String() + ": " + w.Err.Error()
}

// Unwrap gives the reason.
func (w *Wait) Unwrap() error { return w.Err }

// Already is returned by a link that finds the message done before: it is
// acked, unrun, and counted as a duplicate.
var Already = errors.New("already done") //nolint:errname,staticcheck,revive // a verdict of the chain, not a failure

// Exhausted is an error whose attempts are used up. It hides what it wraps,
// so that nobody outside reads a wish to retry from it.
type Exhausted struct { //nolint:errname // a verdict
	Attempts int
	Err      error
}

func (e *Exhausted) Error() string {
	return fmt.Sprintf("given up after %d attempts: %v", e.Attempts, e.Err)
}

// Panicked is a panic in the chain, or a call of runtime.Goexit.
type Panicked struct { //nolint:errname // says what happened
	Value any // nil for Goexit
	Stack []byte
}

func (p *Panicked) Error() string {
	if p.Value == nil {
		return "goroutine ended by Goexit"
	}
	return fmt.Sprintf("panic: %v", p.Value)
}

// Unwrap gives the value panicked with, if that is an error.
func (p *Panicked) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// ErrorText gives the text of an error in at most limit bytes. It survives
// errors whose methods panic, as those of a nil pointer may.
func ErrorText(err error, limit int) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, whose text panics", err)
		}
	}()
	return CapText(err.Error(), limit)
}

// Class names the kind of an error with few enough values for a label: the
// type of the innermost error that has a type of its own.
func Class(err error) (class string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			class = typeOf(err)
		}
	}()
	for {
		if _, ok := errors.AsType[*Panicked](err); ok {
			return "panic"
		}
		next := errors.Unwrap(err)
		if e, ok := err.(*Exhausted); ok { //nolint:errorlint // one level at a time
			next = e.Err
		}
		if next == nil {
			return typeOf(err)
		}
		err = next
	}
}

func typeOf(err error) string { return strings.TrimPrefix(fmt.Sprintf("%T", err), "*") }

// stackOf gives the stack of a panic within err, capped.
func stackOf(err error) (stack string) {
	defer func() {
		if recover() != nil {
			stack = ""
		}
	}()
	var p *Panicked
	if x, ok := errors.AsType[*Exhausted](err); ok {
		err = x.Err
	}
	if !errors.As(err, &p) {
		return ""
	}
	return CapText(string(p.Stack), maxDeadStack)
}

// Interrupts tells whether err says that the worker stops or the delivery is
// revoked: then it is no failure, and links and engine pass it on untouched.
func Interrupts(err error) bool {
	return errors.Is(err, ErrShutdown) || errors.Is(err, ErrRevoked)
}
