package handlers

import "time"

// Permanent marks an error that trying again cannot mend: the message goes to
// the dead letter at once. Permanent(nil) is nil, so that
// `return handlers.Permanent(validate(order))` succeeds when there is nothing wrong.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string   { return e.err.Error() }
func (e *permanentError) Unwrap() error   { return e.err }
func (e *permanentError) Permanent() bool { return true }

// RetryAfter has the message tried again no earlier than d from now, instead of
// after the policy's own backoff, which stays if d is 0 or less. It is an
// attempt like any other: when they are used up, the message goes to the
// dead letter. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}

type retryAfterError struct {
	err error
	d   time.Duration
}

func (e *retryAfterError) Error() string             { return e.err.Error() }
func (e *retryAfterError) Unwrap() error             { return e.err }
func (e *retryAfterError) RetryAfter() time.Duration { return e.d }

// Skip has the message acked and counted as skipped: it is none of this
// handler's business, now and later. What the handler has emitted is not sent.
// reason is for logs.
func Skip(reason string) error { return &skipError{reason} }

type skipError struct{ reason string }

func (e *skipError) Error() string { return "skipped: " + e.reason }
func (e *skipError) Skip() bool    { return true }

// codecError is a body that is not what the handler takes, or a value that
// cannot be one. Its text quotes neither, as that of the cause may.
type codecError struct {
	text   string
	cause  error
	reason string
}

func (e *codecError) Error() string      { return e.text }
func (e *codecError) Unwrap() error      { return e.cause }
func (e *codecError) Permanent() bool    { return true }
func (e *codecError) DeadReason() string { return e.reason }
