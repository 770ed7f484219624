package watermill

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

type consumer struct {
	subs    []*subscription
	session uint64
	cancel  context.CancelFunc
	changed chan struct{} // a pause, a resume or the end
	closed  atomic.Bool
	close   func() error // of sub, once
}

// subscription is one topic of a consumer.
type subscription struct {
	messages <-chan *message.Message
	a        *transport.Assignment
	tag      int64
	paused   atomic.Bool
}

func (t *adapter) subscribe(cfg transport.ConsumerConfig) (transport.Consumer, error) {
	sub, err := t.subscriber(cfg, adapt(cfg.Log))
	if err != nil {
		return nil, fmt.Errorf("open subscriber: %w", err)
	}
	ctx, cancel := context.WithCancel(cfg.Base)
	c := &consumer{
		session: t.sessions.Add(1), cancel: cancel,
		changed: make(chan struct{}, 1), close: sync.OnceValue(sub.Close),
	}
	for _, topic := range cfg.Topics {
		messages, err := sub.Subscribe(ctx, topic)
		if err != nil {
			_ = c.Close(cfg.Base)
			return nil, fmt.Errorf("subscribe to topic %q: %w", topic, err)
		}
		c.subs = append(c.subs, &subscription{messages: messages, a: transport.NewAssignment(cfg.Base, topic, 0)})
	}
	return c, nil
}

// Receive takes what subscriptions have to give. They hold no more than one
// message each until that is settled, so maxBytes bounds nothing.
func (c *consumer) Receive(ctx context.Context, limit int, _ int64) ([]*transport.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, m, err := c.wait(ctx)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		ds := []*transport.Delivery{c.delivery(s, m)}
		for _, s := range c.subs {
			if len(ds) == limit {
				break
			}
			if s.paused.Load() {
				continue
			}
			select {
			case m := <-s.messages: // nil if it has ended, which the next Receive sees
				if m != nil {
					ds = append(ds, c.delivery(s, m))
				}
			default:
			}
		}
		return ds, nil
	}
}

// wait gives the next message, or nil if it is worth looking again.
func (c *consumer) wait(ctx context.Context) (*subscription, *message.Message, error) {
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c.changed)},
	}
	var active []*subscription
	for _, s := range c.subs {
		if !s.paused.Load() {
			active = append(active, s)
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.messages)})
		}
	}
	i, v, ok := reflect.Select(cases)
	switch {
	case c.closed.Load():
		return nil, nil, transport.ErrClosed
	case i == 0:
		return nil, nil, ctx.Err()
	case i == 1:
		return nil, nil, nil
	case !ok:
		c.revoke()
		return nil, nil, fmt.Errorf("subscription of topic %q has ended", active[i-2].a.Topic)
	}
	m, _ := reflect.TypeAssert[*message.Message](v)
	return active[i-2], m, nil
}

func (c *consumer) delivery(s *subscription, m *message.Message) *transport.Delivery {
	s.tag++
	return &transport.Delivery{
		ID: m.UUID, Payload: m.Payload, Headers: transport.HeadersOf(m.Metadata), Key: m.Metadata.Get(transport.KeyHeader),
		Topic: s.a.Topic, Offset: s.tag, Session: c.session, Assignment: s.a, Tag: m,
	}
}

func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	for _, s := range c.subs {
		if s.a == a {
			s.paused.Store(paused)
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

// Settle acks, or nacks what is given back. A count of attempts has no place
// to go.
func (c *consumer) Settle(_ context.Context, batch []transport.Settlement) error {
	for _, st := range batch {
		m, ok := st.Delivery.Tag.(*message.Message)
		if !ok {
			return fmt.Errorf("settle %s: not a delivery of this transport", st.Delivery.Coordinates())
		}
		if st.Delivery.Assignment.Revoked() {
			continue
		}
		switch st.Verdict {
		case transport.Ack:
			m.Ack()
		case transport.Delay, transport.Release:
			m.Nack()
		case transport.Record:
		default:
			return fmt.Errorf("settle %s: verdict %q is not known", st.Delivery.Coordinates(), st.Verdict)
		}
	}
	return nil
}

// Close ends the subscriptions. What is not settled is neither acked nor
// nacked: the broker hands it out again.
func (c *consumer) Close(ctx context.Context) error {
	c.closed.Store(true)
	c.revoke()
	c.cancel()
	c.look()
	_, err := await(ctx, func() (struct{}, error) {
		var drained sync.WaitGroup
		for _, s := range c.subs {
			drained.Go(func() {
				for range s.messages { // a Subscriber may be blocked in sending
				}
			})
		}
		err := c.close()
		drained.Wait()
		return struct{}{}, err
	}, nil)
	if err != nil {
		return fmt.Errorf("close subscriber: %w", err)
	}
	return nil
}

func (c *consumer) revoke() {
	for _, s := range c.subs {
		s.a.Revoke()
	}
}
