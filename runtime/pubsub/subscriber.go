package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

const (
	defaultTimeout     = 30 * time.Second
	defaultDrain       = 5 * time.Second
	defaultConcurrency = 32
)

// Subscriber is one member of one group. Fields are set before the first use.
// The transport stays its maker's to close, after the subscriber.
type Subscriber struct {
	// Concurrency is how many messages of a subscription may wait for their
	// Ack or Nack at once. Default: 32.
	Concurrency int
	// Order is the order kept, in which a message that is not acked holds up
	// what is behind it. Default: by key where the transport keeps that over
	// all instances, else none.
	Order transport.Order
	// Start is where a group begins that has no position. Default: earliest.
	Start transport.Start
	// Backoff is when a message that was nacked comes again; its Attempts are
	// not read, since it does so for ever. Default: after 200ms, growing to 30s.
	Backoff transport.Backoff
	// Drain is how long a subscription that ends waits for the messages it has
	// handed out; their contexts live on until then. Default: 5s.
	Drain time.Duration
	// Timeout bounds the beginning of a subscription. Default: 30s.
	Timeout time.Duration
	// Topology is what may be declared. Default: declare.
	Topology transport.Topology
	// Log gets changes of state and, thinned out, nacks. Default: none.
	Log *slog.Logger

	transport transport.Transport
	group     string

	mu     sync.Mutex
	closed bool
	open   map[*subscription]struct{}
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber makes a subscriber in a group. It reaches for the broker when
// it is first used.
func NewSubscriber(t transport.Transport, group string) *Subscriber {
	return &Subscriber{transport: t, group: group, open: make(map[*subscription]struct{})}
}

// Subscribe joins the group for a topic and returns once it is a member. A
// broker that cannot be reached within Timeout is an error; one that is lost
// later is tried for ever.
//
// A message that is nacked comes again after a growing wait; one that is not
// answered holds its place until it is, or until the subscription ends. The
// context of a message has the values of ctx; it is cancelled when the message
// is answered, when it is no longer ours, and at the end of Drain after ctx or
// Close has ended the subscription. The channel is closed then.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.begin(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe to topic %q: %w", topic, err)
	}
	limit := time.NewTimer(orDefault(s.Timeout, defaultTimeout))
	defer limit.Stop()
	select {
	case <-sub.router.Ready():
		return sub.out, nil
	case <-sub.done:
		err = sub.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = errors.New("the broker could not be reached in time")
		if why := sub.router.Status()[0].Why; why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
	}
	sub.stop()
	<-sub.done
	if err == nil {
		err = transport.ErrClosed
	}
	return nil, fmt.Errorf("subscribe to topic %q: %w", topic, err)
}

func (s *Subscriber) begin(ctx context.Context, topic string) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, transport.ErrClosed
	}
	sub, err := newSubscription(ctx, s, topic)
	if err != nil {
		return nil, err
	}
	s.open[sub] = struct{}{}
	go func() {
		sub.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, sub)
	}()
	return sub, nil
}

// SubscribeInitialize makes the topic, and the group, which gets what is
// published from now on.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), orDefault(s.Timeout, defaultTimeout))
	defer cancel()
	mode := s.Topology
	if mode == "" {
		mode = transport.TopologyDeclare
	}
	err := s.transport.Declare(ctx, mode, transport.Declaration{Topic: topic, Group: s.group, Start: s.Start})
	if err != nil {
		return fmt.Errorf("initialize topic %q: %w", topic, err)
	}
	return nil
}

// Close ends all subscriptions, and returns when their channels are closed:
// that is Drain later at the most, and a moment for leaving the broker.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	var open []*subscription
	for sub := range s.open {
		open = append(open, sub)
	}
	s.mu.Unlock()
	for _, sub := range open {
		sub.stop()
	}
	for _, sub := range open {
		<-sub.done
	}
	return nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}
