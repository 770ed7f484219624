package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// DeadLetterOptions is what DeadLetter needs besides the policy. Under the
// engine only Retry is read.
type DeadLetterOptions struct {
	// Retry is the policy of the Retry link inside. nil: there is none, and
	// every error is final but one that asks to wait.
	Retry *transport.RetryPolicy

	// Publisher takes the copies under Watermill's Router. Its Publish must
	// return only when the broker has the message.
	Publisher message.Publisher
	// Group fills `{group}` and the provenance; default: the handler's name.
	Group string
	// Instance is the worker's name in the provenance.
	Instance string
}

// DeadLetter takes a message that has failed for good to where the policy
// says: a copy to a topic, nowhere (drop), or no further (block).
//
// Under the engine it marks the message and returns the error, and the engine
// publishes. Under Watermill's Router it publishes in place, from the message
// as it arrived at this link, and returns nil only if that succeeded: else,
// after up to a second, an error, so that the message stays unacked. There block runs the handler again at MaxInterval
// until it succeeds or the context ends.
func DeadLetter(policy transport.DeadLetter, o DeadLetterOptions) message.HandlerMiddleware {
	if policy.Mode == "" {
		policy.Mode = transport.DeadToTopic
	}
	if policy.Mode == transport.DeadToTopic && policy.Topic == "" {
		policy.Topic = transport.DefaultDeadTopic
	}
	if o.Retry == nil {
		o.Retry = attempts(1)
	}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			a := transport.AttemptFrom(ctx)
			if a == nil {
				return deadLetterInPlace(policy, &o, next, msg)
			}
			out, err := next(msg)
			if err == nil {
				return out, nil
			}
			if !interrupted(ctx, a, err) {
				if d := o.Retry.Decide(err, a.Number()); d.Action == transport.ActionDead {
					transport.MarkDead(ctx, transport.DeadMark{Policy: policy, Reason: d.Reason, Err: err})
				}
			}
			return nil, err
		}
	}
}

func deadLetterInPlace(policy transport.DeadLetter, o *DeadLetterOptions, next message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	arrived := take(msg)
	ctx := arrived.ctx
	defer msg.SetContext(ctx)
	count := new(tally)
	for {
		msg.SetContext(context.WithValue(ctx, tallyKey{}, count))
		out, err := next(msg)
		if err == nil {
			return out, nil
		}
		if interrupted(ctx, nil, err) {
			return nil, err
		}
		d := o.Retry.Decide(err, max(1, count.attempts))
		switch d.Action {
		case transport.ActionSkip, transport.ActionDuplicate:
			return nil, nil
		case transport.ActionWait:
			return nil, err
		case transport.ActionDead:
		}
		switch policy.Mode {
		case transport.DeadDrop:
			return nil, nil
		case transport.DeadToTopic:
			return nil, publishDead(policy, o, &arrived, d.Reason, err, count)
		case transport.DeadBlock:
		}
		if stopped := sleep(ctx, o.Retry.MaxInterval()); stopped != nil {
			return nil, fmt.Errorf("%w while blocked by: %w", stopped, err)
		}
		arrived.restore(msg)
	}
}

func publishDead(policy transport.DeadLetter, o *DeadLetterOptions, arrived *snapshot, reason string, err error, count *tally) error {
	if o.Publisher == nil {
		return fmt.Errorf("dead letter of message %q: no publisher given in DeadLetterOptions, after: %w", arrived.uuid, err)
	}
	now := time.Now()
	i := transport.DeadInfo{
		Reason:       reason,
		Err:          err,
		Topic:        message.SubscribeTopicFromCtx(arrived.ctx),
		Group:        o.Group,
		Consumer:     message.HandlerNameFromCtx(arrived.ctx),
		Instance:     o.Instance,
		Attempts:     max(1, count.attempts),
		FirstFailure: count.first,
		LastFailure:  now,
	}
	if i.Group == "" {
		i.Group = i.Consumer
	}
	if i.FirstFailure.IsZero() {
		i.FirstFailure = now
	}
	if x, ok := errors.AsType[*transport.Exhausted](err); ok {
		i.Attempts = x.Attempts
	}
	topic, nameErr := transport.DeadTopic(policy.Topic, i.Topic, i.Group)
	if nameErr != nil {
		return fmt.Errorf("dead letter of message %q: %w, after: %w", arrived.uuid, nameErr, err)
	}
	m := transport.DeadMessage(arrived.uuid, arrived.payload, arrived.metadata, i)
	m.SetContext(context.WithoutCancel(arrived.ctx))
	if pubErr := o.Publisher.Publish(topic, m); pubErr != nil {
		_ = sleep(arrived.ctx, jittered(shortWait)) // no hot loop of nacks; if ctx ends, the error is the same
		return fmt.Errorf("dead letter %q: publish of message %q: %w, after: %w", topic, arrived.uuid, pubErr, err)
	}
	return nil
}
