package runtimetest

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// link is a worker's connection to a broker in memory. All that goes over it
// is written into the ledger.
type link struct {
	*memory.Transport

	name   string
	ledger *ledger
}

// Declare notes which topics are dead letters.
func (l *link) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	for _, d := range ds {
		if d.DeadLetter {
			l.ledger.deadTopic(d.Topic)
		}
	}
	return l.Transport.Declare(ctx, mode, ds...)
}

// OpenConsumer notes who reads what.
func (l *link) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	c, err := l.Transport.OpenConsumer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l.ledger.joined(reader{broker: l.name, consumer: cfg.Name, group: cfg.Group, topics: cfg.Topics})
	return &linkConsumer{c, cfg.Name, l.ledger}, nil
}

// OpenProducer opens one that notes what the broker has confirmed.
func (l *link) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p, err := l.Transport.OpenProducer(ctx)
	if err != nil {
		return nil, err
	}
	return &linkProducer{p, l.ledger}, nil
}

type linkConsumer struct {
	transport.Consumer

	name   string
	ledger *ledger
}

func (c *linkConsumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	ds, err := c.Consumer.Receive(ctx, limit, maxBytes)
	for _, d := range ds {
		c.ledger.received(c.name, d)
	}
	return ds, err
}

func (c *linkConsumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	err := c.Consumer.Settle(ctx, batch)
	if err == nil {
		for i := range batch {
			c.ledger.told(c.name, &batch[i])
		}
	}
	return err
}

type linkProducer struct {
	transport.Producer

	ledger *ledger
}

func (p *linkProducer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	err := p.Producer.Publish(ctx, topic, msgs...)
	failed := map[int]bool{}
	if partly, ok := errors.AsType[*transport.PublishError](err); ok {
		for _, f := range partly.Failed {
			failed[f.Index] = true
		}
	} else if err != nil {
		return err
	}
	for i, m := range msgs {
		if !failed[i] {
			p.ledger.published(topic, m)
		}
	}
	return err
}

// store is where dedup keeps its keys. It sees the runs that dedup ends before
// they come to a handler.
type store struct {
	*middleware.MemoryDedup

	ledger *ledger
}

// Claim notes the run that asks.
func (s *store) Claim(ctx context.Context, key middleware.DedupKey, lease time.Duration) (middleware.DedupState, error) {
	if a := transport.AttemptFrom(ctx); a != nil {
		s.ledger.begin(a) //nolint:contextcheck // the attempt is the context
	}
	return s.MemoryDedup.Claim(ctx, key, lease)
}
