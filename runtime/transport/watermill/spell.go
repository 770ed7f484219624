package watermill

import (
	"context"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// spell is one spell of owning a topic, or a partition of it. All but its
// assignment is guarded by the consumer's mutex.
type spell struct {
	a      *transport.Assignment
	paused bool
	over   bool
	held   int // received and not settled

	// leaving: the broker has taken the partition away, and the Subscriber
	// would ignore an ack. mark tells the broker instead.
	leaving bool
	mark    func(offset int64)
	// expected are offsets that readers of the same partition have yet to hand
	// out, in order; early are those handed out before their turn.
	expected []int64
	early    map[int64]*handed
	idle     chan struct{} // closed when leaving, and nothing is held
}

// begin begins a spell.
func (c *consumer) begin(at place) *spell {
	sp := &spell{a: transport.NewAssignment(c.cfg.Base, at.topic, at.partition), idle: make(chan struct{}), early: make(map[int64]*handed)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spells[at] = sp
	return sp
}

// inOrder gives what can be received now that h has come. A message that is
// handed out again is expected no more, and waits for nothing.
func (sp *spell) inOrder(h *handed) []*handed {
	offset, _ := kafka.MessagePartitionOffsetFromCtx(h.m.Context())
	if len(sp.expected) == 0 || offset < sp.expected[0] {
		return []*handed{h}
	}
	sp.early[offset] = h
	var ready []*handed
	for len(sp.expected) > 0 && sp.early[sp.expected[0]] != nil {
		ready = append(ready, sp.early[sp.expected[0]])
		delete(sp.early, sp.expected[0])
		sp.expected = sp.expected[1:]
	}
	return ready
}

// release answers a message that came when its spell was over, so that the
// Subscriber's loop ends. It does nothing for a Subscriber without claims,
// which would take the ack for one.
func (sp *spell) release(m *message.Message) {
	if sp != nil && sp.leaving {
		m.Ack()
	}
}

// leaveSpell begins the end of a spell whose partition is taken away.
func (c *consumer) leaveSpell(sp *spell) {
	c.mu.Lock()
	sp.leaving = true
	c.checkIdle(sp)
	c.mu.Unlock()
	sp.a.Leave()
}

// letGo ends it. The Subscriber waits for an answer to what it has handed out,
// which the broker has taken away: it gets one that means nothing any more.
func (c *consumer) letGo(sp *spell) {
	c.mu.Lock()
	sp.over = true
	c.mu.Unlock()
	sp.a.Revoke()
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, h := range c.held {
		if h.spell == sp {
			delete(c.held, m)
			sp.release(m)
		}
	}
	c.back = slices.DeleteFunc(c.back, func(h *handed) bool {
		if h.spell == sp {
			sp.release(h.m)
		}
		return h.spell == sp
	})
	c.look()
}

func (c *consumer) checkIdle(sp *spell) {
	if sp.leaving && sp.held == 0 {
		select {
		case <-sp.idle:
		default:
			close(sp.idle)
		}
	}
}

// Settle acks. What is released is nacked, but not before Receive comes again:
// a worker that stops leaves it to Close. A count of attempts has no place to go.
func (c *consumer) Settle(_ context.Context, batch []transport.Settlement) error {
	for _, st := range batch {
		if _, ok := st.Delivery.Tag.(*handed); !ok {
			return fmt.Errorf("settle %s: not a delivery of this transport", st.Delivery.Coordinates())
		}
		switch st.Verdict {
		case transport.Ack, transport.Release, transport.Record:
		case transport.Delay:
			return fmt.Errorf("delay %s: %w", st.Delivery.Coordinates(), transport.ErrUnsupported)
		default:
			return fmt.Errorf("settle %s: verdict %q is not known", st.Delivery.Coordinates(), st.Verdict)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range batch {
		h, _ := st.Delivery.Tag.(*handed)
		if st.Verdict == transport.Record || c.held[h.m] != h || h.delivery != st.Delivery || h.spell.over {
			continue
		}
		switch {
		case st.Verdict == transport.Ack:
			if h.spell.leaving {
				h.spell.mark(st.Delivery.Offset)
			}
			h.m.Ack()
			c.gate.pass(h.m)
			delete(c.held, h.m)
		case h.spell.leaving: // it is answered when the spell is over
		default:
			delete(c.held, h.m)
			c.back = append(c.back, h)
			c.look()
		}
		h.spell.held--
		c.checkIdle(h.spell)
	}
	return nil
}
