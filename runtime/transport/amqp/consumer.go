package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// consumer is one member of a group: a connection, with a channel for each of
// its topics. Whatever goes wrong with any of them ends it.
type consumer struct {
	t    *Transport
	cfg  transport.ConsumerConfig
	conn *conn
	subs []*subscription
	late delayer

	mu      sync.Mutex
	failure error         // ends Receive
	turn    int           // the subscription that the next Receive begins with
	look    chan struct{} // to Receive: there may be something
	closing sync.Once
	closed  error
}

var _ transport.Consumer = (*consumer)(nil)

// OpenConsumer joins the group: the broker begins to send at once, as much as
// the prefetch, of which each topic has an equal part.
func (t *Transport) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	if len(cfg.Topics) == 0 || cfg.Group == "" {
		return nil, transport.Refuse(fmt.Errorf("consumer %q needs a topic and a group", cfg.Name))
	}
	if cfg.Log == nil {
		cfg.Log = t.o.Log
	}
	ds := make([]transport.Declaration, len(cfg.Topics))
	for i, topic := range cfg.Topics {
		ds[i] = transport.Declaration{Topic: topic, Group: cfg.Group, Start: cfg.Start}
	}
	if err := t.Declare(ctx, cfg.Topology, ds...); err != nil {
		return nil, fmt.Errorf("consumer %q: %w", cfg.Name, err)
	}
	c := &consumer{t: t, cfg: cfg, look: make(chan struct{}, 1)}
	if err := t.pace.await(ctx, c.role()); err != nil {
		return nil, err
	}
	var err error
	if c.conn, err = t.dial(ctx, c.role()); err != nil {
		return nil, err
	}
	c.late.init(c)
	session := t.sessions.Add(1)
	for _, topic := range cfg.Topics {
		if err := c.subscribe(ctx, topic, session); err != nil {
			return nil, errors.Join(fmt.Errorf("consumer %q: %w", cfg.Name, err), c.Close(ctx))
		}
	}
	for _, s := range c.subs {
		s.start()
	}
	go c.watch()
	return c, nil
}

func (c *consumer) role() string { return "consumer " + c.cfg.Name }

// subscribe opens the channel of a topic and begins to consume.
func (c *consumer) subscribe(ctx context.Context, topic string, session uint64) (err error) {
	queue, _, err := c.t.queueOf(ctx, c.t.route(topic), c.cfg.Group)
	if err != nil {
		return err
	}
	s := &subscription{c: c, topic: topic, queue: queue, session: session, prefetch: max(1, c.cfg.Prefetch/len(c.cfg.Topics))}
	s.a = transport.NewAssignment(c.cfg.Base, topic, 0) //nolint:contextcheck // ctx bounds only the opening
	ctx, cancel := withinAnswer(ctx)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("queue %q: %w", queue, context.Cause(ctx))
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = c.conn.raw.Close() })()
	ch, err := c.conn.Channel()
	if err != nil {
		return explain(err)
	}
	s.ch = ch
	s.closed = ch.NotifyClose(make(chan *amqp091.Error, 1))
	s.cancelled = ch.NotifyCancel(make(chan string, 1))
	if err := ch.Qos(s.prefetch, 0, false); err != nil {
		return about("prefetch of queue", queue, err)
	}
	s.deliveries, err = ch.Consume(queue, c.cfg.Name, false, false, false, false, nil)
	if err != nil {
		return missing("queue", queue, err)
	}
	c.subs = append(c.subs, s)
	c.t.mu.Lock()
	c.t.members[s] = struct{}{}
	c.t.mu.Unlock()
	return nil
}

// watch ends the consumer with its connection.
func (c *consumer) watch() {
	<-c.conn.lost
	c.fail(fmt.Errorf("connection to broker %s: %w", c.conn.node.address, c.conn.why()))
}

// fail ends Receive with err, unless it has ended with another before. What
// the channels hold is no longer ours, so none of it is delayed any more.
func (c *consumer) fail(err error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.mu.Unlock()
	for _, s := range c.subs {
		s.revoke()
	}
	c.late.end()
	c.poke()
}

func (c *consumer) poke() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// Receive returns what the broker has sent. It knows no bytes: maxBytes is
// without effect.
func (c *consumer) Receive(ctx context.Context, limit int, _ int64) ([]*transport.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ds, err := c.take(limit)
		if len(ds) > 0 || err != nil {
			return ds, err
		}
		select {
		case <-c.look:
		case <-ctx.Done():
		}
	}
}

// take gives what there is, each topic in its turn.
func (c *consumer) take(limit int) ([]*transport.Delivery, error) {
	c.mu.Lock()
	err := c.failure
	first := c.turn
	c.turn++
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var ds []*transport.Delivery
	for i := range c.subs {
		ds = c.subs[(first+i)%len(c.subs)].take(ds, limit)
	}
	return ds, nil
}

// Pause has Receive return nothing more of a. The window at the broker stays
// full meanwhile, so nothing overtakes what is in it.
func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

// Resume ends that.
func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	for _, s := range c.subs {
		if s.a == a {
			s.mu.Lock()
			s.paused = paused
			s.mu.Unlock()
		}
	}
	c.poke()
}

// giveBack closes the channels, each of which returns what it holds in one piece.
func (c *consumer) giveBack(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = c.conn.raw.Close() })()
	for _, s := range c.subs {
		s.awaitAcks(ctx)
		if s.ch.Close() == nil && s.unsettled() > 0 {
			c.t.awaitReturn(ctx, s.queue)
		}
	}
}

// ackRest is how long a channel rests between its last ack and its end.
const ackRest = 150 * time.Millisecond

// awaitAcks gives a quorum queue time for what it was told. The broker's channel
// holds acks back while more than some dozens wait to be written to its log,
// and forgets those when it is closed. There is no answer to an ack; but every
// answer the channel gives meanwhile lets it hear what is written, and send on.
func (s *subscription) awaitAcks(ctx context.Context) {
	s.mu.Lock()
	until := s.toldAt.Add(ackRest)
	s.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil); err != nil {
			return
		}
		pause := time.NewTimer(ackRest / 10)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// longestReturn bounds the wait for a queue to show what it has got back: a
// quorum queue hears of it some milliseconds after the channel is closed.
const longestReturn = 100 * time.Millisecond

// awaitReturn waits until a queue has messages.
func (t *Transport) awaitReturn(ctx context.Context, queue string) {
	ctx, cancel := context.WithTimeout(ctx, longestReturn)
	defer cancel()
	for ctx.Err() == nil {
		if q, err := t.stat(ctx, queue); err != nil || q.Messages > 0 {
			return
		}
	}
}

// Close tells the broker what it was not told yet, and closes the channels,
// which brings back what is not settled, in its order.
func (c *consumer) Close(ctx context.Context) error {
	c.closing.Do(func() {
		for _, s := range c.subs {
			s.leave()
		}
		c.late.close(ctx)
		for _, s := range c.subs {
			_ = s.flush(true) // what could not be told comes again
		}
		c.fail(fmt.Errorf("consumer %q: %w", c.cfg.Name, transport.ErrClosed))
		wasAlive := c.conn.alive()
		if wasAlive {
			c.giveBack(ctx)
		}
		c.closed = c.conn.end(ctx)
		for _, s := range c.subs {
			s.end()
		}
		if wasAlive {
			c.t.pace.rest(c.role())
		}
	})
	return c.closed
}
