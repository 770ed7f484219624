package watermill

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// producer is a Publisher.
type producer struct {
	pub     message.Publisher
	foreign bool // somebody else closes it
	// single: a call with many messages is nothing but one after the other, so
	// that it can be told which of them failed.
	single bool
	// never tells an error that no later try can mend; nil: it cannot be known.
	never func(error) bool
}

// Publish passes the messages on. A Publisher does not say which of them
// failed: unless it takes them one by one, an error is about all.
func (p *producer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := transport.CheckName("topic", topic); err != nil {
		return refusedName(topic, len(msgs), err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	msgs = copies(msgs) //nolint:contextcheck // a message has its own
	if !p.single {
		err := awaitErr(ctx, func() error { return p.pub.Publish(topic, msgs...) })
		if err != nil && p.permanent(err) && len(msgs) == 1 {
			return p.failure(topic, 1, 0, err, true)
		}
		if err != nil {
			return fmt.Errorf("publish to topic %q: %w", topic, err)
		}
		return nil
	}
	for i, m := range msgs {
		if err := awaitErr(ctx, func() error { return p.pub.Publish(topic, m) }); err != nil {
			if ctx.Err() != nil { // it may be there yet
				return fmt.Errorf("publish to topic %q: %w", topic, err)
			}
			return p.failure(topic, len(msgs), i, err, p.permanent(err))
		}
	}
	return nil
}

// copies are what a call may still read when Publish has given it up, and the
// messages are their caller's again.
func copies(msgs []*message.Message) []*message.Message {
	out := make([]*message.Message, len(msgs))
	for i, m := range msgs {
		out[i] = message.NewMessage(m.UUID, bytes.Clone(m.Payload))
		out[i].Metadata = maps.Clone(m.Metadata)
		out[i].SetContext(m.Context())
	}
	return out
}

// refusedName is the answer to a name that no later try can help.
func refusedName(topic string, n int, err error) error {
	e := &transport.PublishError{Topic: topic}
	for i := range n {
		e.Failed = append(e.Failed, transport.PublishFailure{Index: i, Err: err, Permanent: true})
	}
	return e
}

func (p *producer) permanent(err error) bool { return p.never != nil && p.never(err) }

// failure says that a message failed, and what is behind it was not tried.
func (p *producer) failure(topic string, n, at int, err error, permanent bool) error {
	e := &transport.PublishError{Topic: topic}
	for i := at; i < n; i++ {
		e.Failed = append(e.Failed, transport.PublishFailure{Index: i, Err: err, Permanent: permanent && i == at})
	}
	return e
}

func (p *producer) Close(ctx context.Context) error {
	if p.foreign {
		return nil
	}
	return awaitErr(ctx, p.pub.Close)
}
