package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

var errAway = errors.New("the broker is away")

// outage is a connection of which parts can be taken away, on any broker.
type outage struct {
	transport.Transport

	mu     sync.Mutex
	cut    map[string]bool        // consumers, by name
	hurt   map[string]func()      // ends the Receive of each that is open
	opened map[string][]time.Time // when each was opened, or could not be
	closed map[string]bool        // topics that take no message
	tries  map[string]int         // publishes that failed, by topic
}

func (o *outage) wrap(tr transport.Transport) transport.Transport {
	o.Transport = tr
	o.cut, o.hurt, o.closed = map[string]bool{}, map[string]func(){}, map[string]bool{}
	o.opened, o.tries = map[string][]time.Time{}, map[string]int{}
	return o
}

// setCut takes a consumer's connection away, or lets it come back.
func (o *outage) setCut(consumer string, cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut[consumer] = cut
	if hurt := o.hurt[consumer]; cut && hurt != nil {
		hurt()
	}
}

// setClosed has publishes to a topic fail, or not any more.
func (o *outage) setClosed(topic string, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed[topic] = closed
}

// failures counts publishes to a topic that have failed.
func (o *outage) failures(topic string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tries[topic]
}

// openings are the times at which a consumer was opened, or could not be.
func (o *outage) openings(consumer string) []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]time.Time(nil), o.opened[consumer]...)
}

func (o *outage) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	o.mu.Lock()
	o.opened[cfg.Name] = append(o.opened[cfg.Name], time.Now())
	cut := o.cut[cfg.Name]
	o.mu.Unlock()
	if cut {
		return nil, errAway
	}
	c, err := o.Transport.OpenConsumer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	away, hurt := context.WithCancel(context.WithoutCancel(ctx))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurt[cfg.Name] = hurt
	return &hurtConsumer{Consumer: c, away: away, end: hurt}, nil
}

func (o *outage) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p, err := o.Transport.OpenProducer(ctx)
	if err != nil {
		return nil, err
	}
	return &hurtProducer{Producer: p, o: o}, nil
}

// hurtConsumer is over when its connection is cut.
type hurtConsumer struct {
	transport.Consumer

	away context.Context //nolint:containedctx // a flag that can be waited for
	end  func()
}

func (c *hurtConsumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(c.away, cancel) //nolint:contextcheck // ends ctx
	defer stop()
	ds, err := c.Consumer.Receive(ctx, limit, maxBytes)
	if c.away.Err() != nil {
		return nil, errAway
	}
	return ds, err
}

func (c *hurtConsumer) Close(ctx context.Context) error {
	c.end()
	return c.Consumer.Close(ctx)
}

type hurtProducer struct {
	transport.Producer

	o *outage
}

func (p *hurtProducer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	p.o.mu.Lock()
	closed := p.o.closed[topic]
	if closed {
		p.o.tries[topic]++
	}
	p.o.mu.Unlock()
	if closed {
		return errAway
	}
	return p.Producer.Publish(ctx, topic, msgs...)
}
