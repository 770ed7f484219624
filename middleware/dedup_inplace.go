package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// inPlace is the way under Watermill's Router: the mark is made before the
// message is acked.
func (d *dedup) inPlace(next message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	publishTopic := message.PublishTopicFromCtx(ctx)
	c, err := d.claim(msg, message.HandlerNameFromCtx(ctx), message.SubscribeTopicFromCtx(ctx))
	if errors.Is(err, transport.Already) {
		return nil, nil
	}
	if w, ok := errors.AsType[*transport.Wait](err); ok {
		if stopped := sleep(ctx, w.After); stopped != nil {
			return nil, stopped
		}
	}
	if err != nil {
		return nil, err
	}

	done := false
	defer func() { // also after a panic or Goexit
		if !done {
			release, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Lease)
			defer cancel()
			_ = c.settle(release, transport.Interrupted)
		}
	}()
	out, err := next(msg)
	if err != nil {
		switch attempts(1).Decide(err, 1).Action {
		case transport.ActionSkip, transport.ActionDuplicate:
		case transport.ActionWait, transport.ActionDead:
			return nil, err
		}
	} else if err := d.publish(publishTopic, out); err != nil {
		return nil, err
	}
	for {
		if err := c.done(ctx); err == nil {
			done = true
			return nil, nil
		}
		if stopped := sleep(ctx, jittered(shortWait)); stopped != nil {
			return nil, stopped
		}
	}
}

// publish sends what the handler returned; the Router gets none of it.
func (d *dedup) publish(topic string, out []*message.Message) error {
	switch {
	case len(out) == 0:
		return nil
	case d.Publisher == nil:
		return &refusal{reason: transport.ReasonPermanent, text: "handler returns messages, which must be published before it is done: set DedupOptions.Publisher"}
	case topic == "":
		return &refusal{reason: transport.ReasonPermanent, text: "handler returns messages, but is registered without a topic to publish them to"}
	}
	if err := d.Publisher.Publish(topic, out...); err != nil {
		return fmt.Errorf("publish to %q: %w", topic, err)
	}
	return nil
}
