package pubsub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Publisher publishes to one transport. Fields are set before the first use.
// The transport stays its maker's to close, after the publisher.
type Publisher struct {
	// Timeout bounds one Publish, and one Close. Default: 30s.
	Timeout time.Duration

	transport transport.Transport

	mu       sync.Mutex
	producer transport.Producer // nil until it is needed
	closed   bool
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher. It reaches for the broker when it is first used.
func NewPublisher(t transport.Transport) *Publisher { return &Publisher{transport: t} }

// Publish returns nil when the broker has confirmed every message. After an
// error some may be there, which a [*transport.PublishError] in it names; to
// publish all of them again is always right. It ends with the context of the
// first message.
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(msgs[0].Context(), p.timeout())
	defer cancel()
	producer, err := p.open(ctx)
	if err != nil {
		return fmt.Errorf("publish to topic %q: %w", topic, err)
	}
	if err := producer.Publish(ctx, topic, msgs...); err != nil {
		return fmt.Errorf("publish to topic %q: %w", topic, err)
	}
	return nil
}

func (p *Publisher) open(ctx context.Context) (transport.Producer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, transport.ErrClosed
	}
	if p.producer == nil {
		producer, err := p.transport.OpenProducer(ctx)
		if err != nil {
			return nil, fmt.Errorf("producer of %s: %w", p.transport.Kind(), err)
		}
		p.producer = producer
	}
	return p.producer, nil
}

// Close ends the publisher; it may be closed twice.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.producer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout())
	defer cancel()
	if err := p.producer.Close(ctx); err != nil {
		return fmt.Errorf("producer of %s: close: %w", p.transport.Kind(), err)
	}
	return nil
}

func (p *Publisher) timeout() time.Duration {
	if p.Timeout > 0 {
		return p.Timeout
	}
	return defaultTimeout
}
