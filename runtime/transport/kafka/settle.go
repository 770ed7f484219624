package kafka

import (
	"context"
	"fmt"

	"github.com/leat-io/leat/runtime/transport"
)

// Settle takes verdicts, and returns when a commit that covers the acks is
// confirmed. Under load it waits for others to be committed with.
func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	for i := range batch {
		st := &batch[i]
		switch _, ours := st.Delivery.Tag.(*handed); {
		case !ours:
			return fmt.Errorf("settle %s: not a delivery of this transport", st.Delivery.Coordinates())
		case st.Verdict == transport.Ack, st.Verdict == transport.Release, st.Verdict == transport.Record:
		case st.Verdict == transport.Delay:
			return fmt.Errorf("delay %s: %w", st.Delivery.Coordinates(), transport.ErrUnsupported)
		default:
			return fmt.Errorf("settle %s: verdict %q is not known", st.Delivery.Coordinates(), st.Verdict)
		}
	}
	if !c.apply(batch) {
		return nil
	}
	return c.commitSoon(ctx)
}

// apply takes verdicts into the spells; false if there is nothing to commit.
func (c *consumer) apply(batch []transport.Settlement) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	released := false
	for i := range batch {
		st := &batch[i]
		h := st.Delivery.Tag.(*handed) //nolint:forcetypeassert // Settle has looked
		s := h.spell
		switch {
		case st.Verdict == transport.Record, h.done:
			continue
		case s.frozen:
			c.late.Add(1)
			continue
		case st.Verdict == transport.Ack:
			s.settle(h.Offset)
			if s.stopped && s.ready() {
				released = true
			}
		default:
			s.giveBack(h)
			released = true
		}
		s.closed(h)
		c.held--
	}
	if released {
		c.stir()
	}
	for _, s := range c.spells {
		if s.changes != s.told {
			return true
		}
	}
	return false
}
