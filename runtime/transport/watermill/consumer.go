package watermill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// source is a Subscriber, as one consumer has it.
type source struct {
	sub     message.Subscriber
	foreign bool // somebody else closes it

	// read adds to a delivery what the kind knows of it; nil: nothing.
	read func(m *message.Message, d *transport.Delivery)
	// lost tells that the connection behind sub is gone, though sub would go
	// on as if it were not; nil: it cannot be known.
	lost <-chan error
	// cut breaks that connection, where sub does not close; nil: it cannot be.
	cut func()
	// claims are the partitions of which sub hands out a message each, in one
	// subscription; nil: a subscription hands out one at a time.
	claims *claims
}

// consumer is one member of a group, with its subscriptions.
type consumer struct {
	cfg     transport.ConsumerConfig
	src     *source
	session uint64
	cancel  context.CancelFunc // ends the subscriptions
	pumps   sync.WaitGroup
	changed chan struct{} // there is something for Receive to look at
	ended   chan struct{} // closed with err
	close   func(context.Context) error

	mu     sync.Mutex
	err    error // what Receive says from now on
	spells map[place]*spell
	queue  []*handed                    // not received yet
	held   map[*message.Message]*handed // not answered yet, of the queue too
	back   []*handed                    // released; nacked when Receive comes again
	gate   gate
	tags   int64
	odd    map[string]bool // what was warned of

	sessions int       // of groups that it is in, where there are claims
	turned   time.Time // when that changed
}

var _ transport.Partial = (*consumer)(nil)

// place is where spells are, one at a time.
type place struct {
	topic     string
	partition int32
}

// subscription is one channel of a Subscriber.
type subscription struct {
	topic    string
	messages <-chan *message.Message
	taken    chan struct{} // Receive has taken what it handed out
}

// handed is a message that the Pub/Sub has handed out.
type handed struct {
	m        *message.Message
	spell    *spell
	from     *subscription
	delivery *transport.Delivery // nil until it is received
}

func (t *adapter) subscribe(cfg transport.ConsumerConfig) (*consumer, error) {
	src, err := t.source(cfg, quietly(cfg.Log))
	if err != nil {
		return nil, fmt.Errorf("open subscriber: %w", err)
	}
	ctx, cancel := context.WithCancel(cfg.Base)
	c := &consumer{
		cfg: cfg, src: src, session: t.sessions.Add(1), cancel: cancel,
		changed: make(chan struct{}, 1), ended: make(chan struct{}),
		spells: make(map[place]*spell), held: make(map[*message.Message]*handed), odd: make(map[string]bool),
		turned: time.Now(),
	}
	c.close = once(c.leave)
	if src.claims != nil {
		src.claims.of = c
	}
	n := 1
	if cfg.Order != transport.OrderKey && cfg.Order != transport.OrderPartition && src.claims == nil {
		n = max(1, min(t.subscriptions, cfg.Prefetch))
	}
	for _, topic := range cfg.Topics {
		if src.claims == nil {
			c.begin(place{topic, 0})
		}
		if err := c.open(ctx, topic, n); err != nil {
			_ = c.Close(cfg.Base)
			return nil, fmt.Errorf("subscribe to topic %q: %w", topic, err)
		}
	}
	if src.lost != nil {
		go func() {
			select {
			case err := <-src.lost:
				c.fail(fmt.Errorf("connection lost: %w", err))
			case <-c.ended:
			}
		}()
	}
	return c, nil
}

// open subscribes n times, all at once: each may be a few round trips to a
// broker, which nobody has time for one after the other.
func (c *consumer) open(ctx context.Context, topic string, n int) error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() {
			messages, err := await(ctx, func() (<-chan *message.Message, error) { return c.src.sub.Subscribe(ctx, topic) }, nil)
			if messages == nil && err == nil {
				err = errors.New("the subscriber gives no channel")
			}
			if errs[i] = err; err == nil {
				c.pumps.Go(func() { c.pump(&subscription{topic: topic, messages: messages, taken: make(chan struct{}, 1)}) }) //nolint:contextcheck // it pumps until the consumer ends
			}
		})
	}
	calls.Wait()
	return cmp.Or(errs...)
}

// once has later calls return what the first one did.
func once(fn func(context.Context) error) func(context.Context) error {
	var o sync.Once
	var err error
	return func(ctx context.Context) error {
		o.Do(func() { err = fn(ctx) })
		return err
	}
}

func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.spells {
		if sp.a == a {
			sp.paused = paused
		}
	}
	c.look()
}

func (c *consumer) look() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// fail ends the consumer; true if it has failed before.
func (c *consumer) fail(err error) (before bool) {
	c.mu.Lock()
	before = c.err != nil
	c.mu.Unlock()
	if !before && err != transport.ErrClosed { //nolint:errorlint // it is ours: leave revokes when acks are through
		c.revoke() // before Receive says why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return true
	}
	c.err = err
	close(c.ended)
	c.look()
	return false
}

func (c *consumer) revoke() {
	c.mu.Lock()
	var as []*transport.Assignment
	for _, sp := range c.spells {
		sp.over = true
		as = append(as, sp.a)
	}
	c.mu.Unlock()
	for _, a := range as {
		a.Revoke()
	}
}

// Close leaves what is not settled unanswered: the broker hands it out again.
func (c *consumer) Close(ctx context.Context) error { return c.close(ctx) }

func (c *consumer) leave(ctx context.Context) error {
	defer c.cancel()
	lost := c.fail(transport.ErrClosed)
	c.gate.wait(ctx)
	c.revoke()
	err := awaitErr(ctx, func() error {
		var err error
		if c.src.foreign || lost {
			c.cancel()
		}
		if !c.src.foreign {
			// Closing comes before cancelling, which throws away what the
			// Subscriber has yet to tell; but some wait for ever without.
			late := time.AfterFunc(gateLimit, c.cancel)
			defer late.Stop()
			err = c.src.sub.Close()
			c.cancel()
		}
		c.pumps.Wait()
		return err
	})
	if err != nil && c.src.cut != nil {
		c.src.cut()
	}
	if err != nil {
		return fmt.Errorf("close subscriber: %w", err)
	}
	return nil
}
