package history

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Wrap has what passes between a transport and its user recorded: what is
// published, handed over, settled and revoked.
func Wrap(tr transport.Transport, l *Log) transport.Transport { return &wrapped{tr, l} }

type wrapped struct {
	transport.Transport

	log *Log
}

func (w *wrapped) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	c, err := w.Transport.OpenConsumer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &consumer{c, w.log}, nil
}

func (w *wrapped) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p, err := w.Transport.OpenProducer(ctx)
	if err != nil {
		return nil, err
	}
	return &producer{p, w.log}, nil
}

type producer struct {
	transport.Producer

	log *Log
}

func (p *producer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	sent := make([]Event, len(msgs)) // the messages are the caller's again when it returns
	for i, m := range msgs {
		sent[i] = Event{Kind: Publishing, ID: m.UUID, Topic: topic, Key: m.Metadata.Get(transport.KeyHeader), Body: BodyOf(m.Payload)}
		p.log.Add(sent[i])
	}
	err := p.Producer.Publish(ctx, topic, msgs...)
	var partly *transport.PublishError
	kind := Published
	if err != nil && !errors.As(err, &partly) {
		kind = MaybeLost
	}
	for i := range sent {
		sent[i].Kind = kind
	}
	if partly != nil {
		for _, f := range partly.Failed {
			sent[f.Index].Kind, sent[f.Index].Text = MaybeLost, f.Err.Error()
			if f.Permanent {
				sent[f.Index].Kind = NotPublished
			}
		}
	}
	for _, e := range sent {
		p.log.Add(e)
	}
	return err
}

type consumer struct {
	transport.Consumer

	log *Log
}

func (c *consumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	ds, err := c.Consumer.Receive(ctx, limit, maxBytes)
	for _, d := range ds {
		c.log.Add(c.log.of(d, Event{Kind: Delivered, Body: BodyOf(d.Payload), Attempt: d.Attempts + 1}))
		d.Assignment.OnRevoke(func() {
			if c.log.held(d) {
				c.log.Add(c.log.of(d, Event{Kind: Revoked}))
			}
		})
	}
	return ds, err
}

func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	for _, s := range batch {
		if s.Verdict == transport.Ack {
			c.log.Add(c.log.of(s.Delivery, Event{Kind: Acking}))
		}
	}
	err := c.Consumer.Settle(ctx, batch)
	for _, s := range batch {
		if err != nil || s.Verdict == transport.Record || s.Delivery.Assignment.Revoked() {
			continue
		}
		kind := Returned
		if s.Verdict == transport.Ack {
			kind = Acked
		}
		c.log.Add(c.log.of(s.Delivery, Event{Kind: kind}))
		c.log.forget(s.Delivery)
	}
	return err
}

// Handler has the runs of a handler recorded, and what the engine makes of
// those that fail for good.
func Handler(h message.HandlerFunc, l *Log) message.HandlerFunc {
	return func(m *message.Message) (out []*message.Message, err error) {
		a := transport.AttemptFrom(m.Context())
		if a == nil {
			return h(m)
		}
		run := Event{Body: BodyOf(m.Payload), Attempt: a.Number()}
		add := func(k Kind, err error) {
			e := l.of(a.Delivery(), run)
			e.Kind = k
			if err != nil {
				e.Text = transport.ErrorText(err, maxText)
			}
			l.Add(e)
		}
		transport.OnSettle(a, func(_ context.Context, o transport.Outcome) error {
			if o == transport.Dead {
				add(Buried, nil)
			}
			return nil
		})
		add(Started, nil)
		kind := Failed // also where it panics
		defer func() { add(kind, err) }()
		out, err = h(m)
		switch {
		case err == nil:
			kind = Done
		case wantsSkip(err):
			kind = Skipped
		}
		return out, err
	}
}

const maxText = 200

func wantsSkip(err error) bool {
	s, ok := errors.AsType[interface {
		error
		Skip() bool
	}](err)
	return ok && s.Skip()
}
