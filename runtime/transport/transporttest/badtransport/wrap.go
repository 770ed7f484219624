// Package badtransport has transports that each break one promise, around one
// that keeps them all: what package transporttest has to find.
package badtransport

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// bad passes everything on to the transport within, but for what has a hook.
type bad struct {
	transport.Transport
	config  func(*transport.ConsumerConfig)
	declare func(transport.Transport, context.Context, transport.Topology, []transport.Declaration) error
	open    func(transport.Consumer, transport.ConsumerConfig) transport.Consumer
	publish func(transport.Producer, context.Context, string, []*message.Message) error
	depth   func(transport.Depth) transport.Depth
	fail    func(error) error // of what could not be opened
	close   func()
}

func (b *bad) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	if b.declare != nil {
		return b.declare(b.Transport, ctx, mode, ds)
	}
	return b.Transport.Declare(ctx, mode, ds...)
}

func (b *bad) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	if b.config != nil {
		b.config(&cfg)
	}
	c, err := b.Transport.OpenConsumer(ctx, cfg)
	if err != nil && b.fail != nil {
		err = b.fail(err)
	}
	if err != nil || b.open == nil {
		return c, err
	}
	return b.open(c, cfg), nil
}

func (b *bad) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p, err := b.Transport.OpenProducer(ctx)
	if err != nil && b.fail != nil {
		err = b.fail(err)
	}
	if err != nil || b.publish == nil {
		return p, err
	}
	return &producer{p, b.publish}, nil
}

func (b *bad) Depth(ctx context.Context, topic, group string) (transport.Depth, error) {
	d, err := b.Transport.Depth(ctx, topic, group)
	if err == nil && b.depth != nil {
		d = b.depth(d)
	}
	return d, err
}

func (b *bad) Close(ctx context.Context) error {
	if b.close != nil {
		b.close()
	}
	return b.Transport.Close(ctx)
}

type producer struct {
	transport.Producer
	publish func(transport.Producer, context.Context, string, []*message.Message) error
}

func (p *producer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	return p.publish(p.Producer, ctx, topic, msgs)
}

// consumer is the same for a consumer.
type consumer struct {
	transport.Consumer
	receive func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error)
	settle  func(ctx context.Context, batch []transport.Settlement) error
	close   func(ctx context.Context) error
	pause   func(a *transport.Assignment)
	resume  func(a *transport.Assignment)
}

func (c *consumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	if c.receive != nil {
		return c.receive(ctx, limit, maxBytes)
	}
	return c.Consumer.Receive(ctx, limit, maxBytes)
}

func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	if c.settle != nil {
		return c.settle(ctx, batch)
	}
	return c.Consumer.Settle(ctx, batch)
}

func (c *consumer) Close(ctx context.Context) error {
	if c.close != nil {
		return c.close(ctx)
	}
	return c.Consumer.Close(ctx)
}

func (c *consumer) Pause(a *transport.Assignment) {
	if c.pause != nil {
		c.pause(a)
		return
	}
	c.Consumer.Pause(a)
}

func (c *consumer) Resume(a *transport.Assignment) {
	if c.resume != nil {
		c.resume(a)
		return
	}
	c.Consumer.Resume(a)
}

// received is a consumer whose deliveries are changed before they are handed out.
func received(change func([]*transport.Delivery) []*transport.Delivery) func(transport.Consumer, transport.ConsumerConfig) transport.Consumer {
	return func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
		return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
			ds, err := c.Receive(ctx, limit, maxBytes)
			return change(ds), err
		}}
	}
}

// each is received for one delivery at a time.
func each(change func(*transport.Delivery)) func(transport.Consumer, transport.ConsumerConfig) transport.Consumer {
	return received(func(ds []*transport.Delivery) []*transport.Delivery {
		for _, d := range ds {
			change(d)
		}
		return ds
	})
}

// Deliveries breaks a transport by a change of what it hands out.
func Deliveries(change func(*transport.Delivery)) func(transport.Transport) transport.Transport {
	return stateless(bad{open: each(change)})()
}

// told is a consumer whose settlements are changed before the broker is told.
func told(change func([]transport.Settlement) []transport.Settlement) func(transport.Consumer, transport.ConsumerConfig) transport.Consumer {
	return func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
		return &consumer{Consumer: c, settle: func(ctx context.Context, batch []transport.Settlement) error {
			return c.Settle(ctx, change(batch))
		}}
	}
}
