package middleware

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Retry has a failed message tried again as [transport.RetryPolicy.Decide]
// says. An error that is not to be tried again passes as it is, but for one
// whose attempts are used up: that becomes a [*transport.Exhausted].
//
// Under the engine Retry returns a [*transport.Wait] at once. Under Watermill's
// Router it waits in place, gives each attempt the message as it arrived, acks
// what asks to be skipped, and returns ctx's error as soon as the message's
// context ends. An attempt there is one run in this process: a redelivery
// starts again at 1.
func Retry(policy *transport.RetryPolicy) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			a := transport.AttemptFrom(ctx)
			if a == nil {
				return retryInPlace(policy, next, msg)
			}
			out, err := next(msg)
			if err == nil {
				return out, nil
			}
			if interrupted(ctx, a, err) {
				return nil, err
			}
			d := policy.Decide(err, a.Number())
			switch d.Action {
			case transport.ActionWait:
				return nil, waitFor(d, err)
			case transport.ActionDead:
				return nil, exhausted(d, err, a.Number())
			case transport.ActionSkip, transport.ActionDuplicate:
			}
			return nil, err
		}
	}
}

func retryInPlace(policy *transport.RetryPolicy, next message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	arrived := take(msg)
	ctx, count := arrived.ctx, tallyFrom(arrived.ctx)
	for n := 1; ; {
		out, err := next(msg)
		if err == nil {
			return out, nil
		}
		if interrupted(ctx, nil, err) {
			return nil, err
		}
		d := policy.Decide(err, n)
		if d.Spent {
			count.failed(n)
		}
		switch d.Action {
		case transport.ActionSkip, transport.ActionDuplicate:
			return nil, nil
		case transport.ActionDead:
			return nil, exhausted(d, err, n)
		case transport.ActionWait:
		}
		if stopped := sleep(ctx, d.After); stopped != nil {
			return nil, fmt.Errorf("%w while waiting for the next attempt after: %w", stopped, err)
		}
		if d.Spent {
			n++
		}
		arrived.restore(msg)
	}
}

// waitFor makes the request for another attempt; one that is in err stands.
func waitFor(d transport.Decision, err error) error {
	if _, ok := errors.AsType[*transport.Wait](err); ok {
		return err
	}
	return &transport.Wait{After: d.After, Spent: d.Spent, Err: err}
}

// exhausted marks err as one whose attempts are used up, if that is why the
// message is dead.
func exhausted(d transport.Decision, err error, n int) error {
	if _, ok := errors.AsType[*transport.Exhausted](err); ok || d.Reason != transport.ReasonExhausted {
		return err
	}
	return &transport.Exhausted{Attempts: n, Err: err}
}
