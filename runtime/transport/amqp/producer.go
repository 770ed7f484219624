package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// producer publishes each topic on a channel of its own, since an error closes
// the channel with all that waits on it.
type producer struct {
	t *Transport

	mu     sync.Mutex
	closed bool
	slots  map[string]*slot
}

// slot is the channel of one topic; turn is held to change it.
type slot struct {
	turn chan struct{}
	line *line
	gone bool // from the producer
}

// maxLines is how many channels a producer keeps; beyond that, idle ones are closed.
const maxLines = 64

var _ transport.Producer = (*producer)(nil)

func newProducer(t *Transport) *producer { return &producer{t: t, slots: make(map[string]*slot)} }

// OpenProducer opens a publisher, which connects with its first message. A
// topic's exchange is made then, if it is missing and may be made.
func (t *Transport) OpenProducer(context.Context) (transport.Producer, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	return newProducer(t), nil
}

// Publish returns when the broker has confirmed that a queue has each message.
func (p *producer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	var failed []transport.PublishFailure
	fail := func(i int, err error) {
		failed = append(failed, transport.PublishFailure{Index: i, Err: err, Permanent: true})
	}
	if err := transport.CheckName("topic", topic); err != nil {
		for i := range msgs {
			fail(i, err)
		}
		return &transport.PublishError{Topic: topic, Failed: failed}
	}
	ctx, cancel := p.within(ctx)
	defer cancel()
	r := p.t.route(topic)
	l, err := p.line(ctx, topic, func(ctx context.Context) error {
		if r.exchange == "" {
			return nil
		}
		return p.t.ensureExchange(ctx, r)
	})
	if err != nil {
		return fmt.Errorf("publish to %q: %w", topic, err)
	}
	items := make([]item, 0, len(msgs))
	for i, m := range msgs {
		pub, err := p.t.encode(m, l.conn.Config.FrameSize)
		if err != nil {
			fail(i, err)
			continue
		}
		items = append(items, item{index: i, exchange: r.exchange, key: r.key, pub: pub})
	}
	more, err := p.publish(ctx, l, items)
	if err != nil {
		return fmt.Errorf("publish to %q: %w", topic, err)
	}
	if failed = append(failed, more...); len(failed) > 0 {
		return &transport.PublishError{Topic: topic, Failed: failed}
	}
	return nil
}

// overdue is why a publish has ended that was not confirmed in time.
type overdue struct{ after time.Duration }

func (o *overdue) Error() string { return fmt.Sprintf("no confirmation within %s", o.after) }

func (p *producer) within(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := p.t.o.PublishTimeout
	return context.WithTimeoutCause(ctx, timeout, &overdue{timeout})
}

// publish gives a channel up that has confirmed nothing in all that time. The
// broker's end of it may speak to a leader of the queue that is no more, and
// that of another channel does not.
func (p *producer) publish(ctx context.Context, l *line, items []item) ([]transport.PublishFailure, error) {
	defer l.users.Add(-1)
	before := l.confirms.Load()
	failed, err := l.publish(ctx, items)
	if late, ok := errors.AsType[*overdue](err); ok && l.confirms.Load() == before {
		l.end(fmt.Errorf("the channel has confirmed nothing for %s and is given up", late.after), nil)
		go l.close()
	}
	return failed, err
}

// toQueue publishes to a queue itself.
func (p *producer) toQueue(ctx context.Context, queue string, pub amqp091.Publishing) error {
	ctx, cancel := p.within(ctx)
	defer cancel()
	l, err := p.line(ctx, "", func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	failed, err := p.publish(ctx, l, []item{{key: queue, pub: pub}})
	if err == nil && len(failed) > 0 {
		err = failed[0].Err
	}
	return err
}

// line finds or opens a channel, for one publish. ensure comes before each opening.
func (p *producer) line(ctx context.Context, name string, ensure func(context.Context) error) (*line, error) {
	for {
		s, err := p.slot(name)
		if err != nil {
			return nil, err
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if s.gone {
			<-s.turn
			continue
		}
		l, err := p.lineOf(ctx, s, name, ensure)
		if err == nil {
			l.users.Add(1) // until publish is over
		}
		<-s.turn
		return l, err
	}
}

func (p *producer) lineOf(ctx context.Context, s *slot, name string, ensure func(context.Context) error) (*line, error) {
	if s.line != nil && s.line.failure() == nil {
		return s.line, s.line.conn.refusal()
	}
	if err := ensure(ctx); err != nil {
		return nil, err
	}
	c, err := p.t.outgoing.get(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.refusal(); err != nil {
		return nil, err
	}
	l, err := openLine(ctx, c, name == "" || p.t.o.Unrouted != drop)
	if err != nil {
		return nil, err
	}
	s.line = l
	return l, nil
}

func (p *producer) slot(name string) (*slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, transport.ErrClosed
	}
	s := p.slots[name]
	if s == nil {
		if len(p.slots) >= maxLines {
			p.evict()
		}
		s = &slot{turn: make(chan struct{}, 1)}
		p.slots[name] = s
	}
	return s, nil
}

// evict closes a channel on which nothing is under way. mu is held.
func (p *producer) evict() {
	for name, s := range p.slots {
		select {
		case s.turn <- struct{}{}:
		default:
			continue
		}
		if s.gone = s.line == nil || s.line.users.Load() == 0 && s.line.idle(); s.gone {
			delete(p.slots, name)
			if s.line != nil {
				go s.line.close()
			}
		}
		<-s.turn
		if s.gone {
			return
		}
	}
}

// Close waits for what is under way, as long as ctx lives.
func (p *producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	slots := p.slots
	p.slots = nil
	p.mu.Unlock()
	var errs []error
	for _, s := range slots {
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.gone = true
		<-s.turn
		if s.line != nil {
			errs = append(errs, s.line.drain(ctx))
		}
	}
	return errors.Join(errs...)
}

// refusal tells that the broker takes nothing at the moment.
func (c *conn) refusal() error {
	if reason := c.blocked.Load(); reason != nil {
		return fmt.Errorf("the broker blocks publishers: %s", *reason)
	}
	return nil
}
