package watermill

import (
	"context"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// pump takes what one subscription hands out, until its channel is closed. It
// takes a further message only when Receive has taken the one before, unless
// the Subscriber itself hands out one for each partition.
func (c *consumer) pump(s *subscription) {
	for m := range s.messages {
		if !c.put(s, m) || c.src.claims != nil {
			continue
		}
		select {
		case <-s.taken:
		case <-c.ended:
		}
	}
	c.fail(fmt.Errorf("topic %q: %w", s.topic, errEnded))
}

// put takes a message in; false if there is nothing in it to receive.
func (c *consumer) put(s *subscription, m *message.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil: // unanswered, it comes again
		return false
	case m == nil:
		c.warn("pub/sub hands out a nil message, which is passed over", s.topic)
		return false
	case c.held[m] != nil:
		c.warn("pub/sub hands out a message that it has handed out already; it is passed over", s.topic)
		return false
	case answered(m):
		c.warn("pub/sub hands out a message that is answered already; it is passed over", s.topic)
		return false
	}
	sp := c.spells[place{s.topic, c.src.claims.partition(m)}]
	if sp == nil || sp.over || sp.leaving {
		sp.release(m)
		return false
	}
	h := &handed{m: m, spell: sp, from: s}
	c.held[m] = h
	if c.src.claims != nil {
		c.queue = append(c.queue, sp.inOrder(h)...)
	} else {
		c.queue = append(c.queue, h)
	}
	c.look()
	return true
}

// warn tells of what a Pub/Sub should not do, once of each. mu is held.
func (c *consumer) warn(what, topic string) {
	if !c.odd[what] {
		c.odd[what] = true
		go c.cfg.Log.WarnContext(c.cfg.Base, what, "topic", topic) //nolint:sloglint // the callers' are static
	}
}

func answered(m *message.Message) bool {
	for _, ch := range [...]<-chan struct{}{m.Acked(), m.Nacked()} {
		select {
		case <-ch:
			return true
		default:
		}
	}
	return false
}

// Receive takes what subscriptions have handed out. They hold no more than a
// message each until that is answered, so maxBytes bounds nothing.
func (c *consumer) Receive(ctx context.Context, limit int, _ int64) ([]*transport.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if ds, err := c.take(limit); len(ds) > 0 || err != nil {
			return ds, err
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *consumer) take(limit int) (ds []*transport.Delivery, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.back { // only now: a worker that stops leaves them to Close
		h.m.Nack()
	}
	c.back = nil
	if c.err != nil {
		return nil, c.err
	}
	c.queue = slices.DeleteFunc(c.queue, func(h *handed) bool {
		if len(ds) == limit || h.spell.paused {
			return false
		}
		if !h.spell.over && !h.spell.leaving {
			ds = append(ds, c.deliver(h))
		}
		select {
		case h.from.taken <- struct{}{}:
		default:
		}
		return true
	})
	return ds, nil
}

// deliver makes the delivery of a message. mu is held.
func (c *consumer) deliver(h *handed) *transport.Delivery {
	c.tags++
	d := &transport.Delivery{
		ID: h.m.UUID, Payload: h.m.Payload, Headers: transport.HeadersOf(h.m.Metadata),
		Topic: h.from.topic, Partition: h.spell.a.Partition, Offset: c.tags, Session: c.session,
		Assignment: h.spell.a, Tag: h,
	}
	if c.src.read != nil {
		c.src.read(h.m, d)
	}
	d.Key = d.Headers.Get(transport.KeyHeader)
	h.delivery = d
	h.spell.held++
	return d
}
