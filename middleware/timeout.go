package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// ErrTimeout is the cause of a context whose attempt took too long; shutdown
// and revocation have causes of their own.
var ErrTimeout = errors.New("attempt timed out")

// TimeoutError is the error of an attempt that failed after its deadline. It
// is a [context.DeadlineExceeded] as well as what the handler returned.
type TimeoutError struct {
	After time.Duration
	Err   error
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("timeout after %v: %v", e.After, e.Err)
}

// Unwrap gives the handler's error first, so that its wishes still count.
func (e *TimeoutError) Unwrap() []error { return []error{e.Err, context.DeadlineExceeded} }

// Timeout gives each attempt d: the context of the message is cancelled then,
// with cause [ErrTimeout]. The attempt still ends only when the handler
// returns: a nil that comes late is a success, an error that comes late is
// wrapped in a [*TimeoutError]. After the attempt the message has the context
// it had before. A d of 0 or less is no timeout.
func Timeout(d time.Duration) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		if d <= 0 {
			return next
		}
		return func(msg *message.Message) ([]*message.Message, error) {
			parent := msg.Context()
			ctx := &lazyDeadline{parent: parent, deadline: time.Now().Add(d)}
			msg.SetContext(ctx)
			defer func() {
				ctx.end()
				msg.SetContext(parent)
			}()
			out, err := next(msg)
			if err != nil && ctx.timedOut() && !verdict(err) {
				return nil, &TimeoutError{After: d, Err: err}
			}
			return out, err
		}
	}
}

// verdict tells whether an error is an answer of the chain, not a failure.
func verdict(err error) bool {
	_, wait := errors.AsType[*transport.Wait](err)
	return wait || errors.Is(err, transport.Already) ||
		errors.Is(err, transport.ErrShutdown) || errors.Is(err, transport.ErrRevoked)
}

// lazyDeadline is a context with a deadline that arms no timer and watches no
// parent until somebody asks for Done, which most handlers never do. From then
// on it is the standard library's, made late: inner answers everything, so
// that [context.Cause], [context.AfterFunc] and children find their own kind.
type lazyDeadline struct {
	parent   context.Context //nolint:containedctx // this is a context
	deadline time.Time
	inner    atomic.Pointer[innerContext]

	mu    sync.Mutex // held to make inner, and for ended
	ended bool       // ended without an inner context, before the parent was
}

type innerContext struct {
	context.Context //nolint:containedctx // this is a context

	cancel context.CancelFunc
}

// Deadline is the earlier one of the attempt's and the parent's.
func (c *lazyDeadline) Deadline() (time.Time, bool) {
	if t, ok := c.parent.Deadline(); ok && t.Before(c.deadline) {
		return t, true
	}
	return c.deadline, true
}

// Done arms the timer.
func (c *lazyDeadline) Done() <-chan struct{} { return c.materialise().Done() }

// Err is right whether or not anybody has asked for Done.
func (c *lazyDeadline) Err() error {
	if in := c.inner.Load(); in != nil {
		return in.Err()
	}
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if !ended {
		if err := c.parent.Err(); err != nil {
			return err
		}
		if time.Now().Before(c.deadline) {
			return nil
		}
	}
	return c.materialise().Err()
}

// Value is the inner context's once there is one: with that, the standard
// library finds the cause and hangs children onto it without a goroutine.
func (c *lazyDeadline) Value(key any) any {
	if in := c.inner.Load(); in != nil {
		return in.Value(key)
	}
	return c.parent.Value(key)
}

func (c *lazyDeadline) materialise() *innerContext {
	if in := c.inner.Load(); in != nil {
		return in
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := c.inner.Load(); in != nil {
		return in
	}
	in := new(innerContext)
	if c.ended {
		in.Context, in.cancel = context.WithCancel(context.WithoutCancel(c.parent))
		in.cancel()
	} else {
		in.Context, in.cancel = context.WithDeadlineCause(c.parent, c.deadline, ErrTimeout)
	}
	c.inner.Store(in)
	return in
}

// timedOut tells whether the deadline passed before anything else ended the
// context.
func (c *lazyDeadline) timedOut() bool {
	return c.Err() != nil && context.Cause(c) == ErrTimeout //nolint:errorlint // set by us, never wrapped
}

// end cancels the context.
func (c *lazyDeadline) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := c.inner.Load(); in != nil {
		in.cancel()
		return
	}
	c.ended = c.parent.Err() == nil
}
