package memory

import (
	"fmt"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// settle tells what became of deliveries. What a spell that is over held, and
// what was settled before, changes nothing.
func (b *Broker) settle(c *consumer, batch []transport.Settlement) error {
	b.mu.Lock()
	var drained []*spell
	var err error
	for i := range batch {
		st := &batch[i]
		r, ok := st.Delivery.Tag.(*ref)
		if !ok {
			err = fmt.Errorf("settle %s: not a delivery of this transport", st.Delivery.Coordinates())
			break
		}
		if err = b.settleOne(r, st); err != nil {
			break
		}
		if s := r.spell; s.leaving && s.held == 0 && !s.over {
			s.over = true
			drained = append(drained, s)
		}
	}
	for _, s := range c.spells {
		s.cursor.part.trim(b.opts.Retain)
	}
	b.mu.Unlock()
	b.end(drained, true)
	return err
}

func (b *Broker) settleOne(r *ref, st *transport.Settlement) error {
	cur := r.spell.cursor
	if r.spell.over || r.offset < cur.floor {
		return nil
	}
	s := cur.slot(r.offset)
	if s.state != held || s.times != r.times {
		return nil
	}
	keeping := b.opts.Capabilities.Attempts
	switch st.Verdict {
	case transport.Ack:
		cur.ack(r.offset, s)
	case transport.Delay:
		if !b.opts.Capabilities.DurableDelay {
			return fmt.Errorf("delay %s: %w", st.Delivery.Coordinates(), transport.ErrUnsupported)
		}
		if keeping != transport.KeepProcess {
			cur.note(r.offset, st, time.Time{})
		}
		cur.delay(r.offset, s, time.Now().Add(st.After))
		cur.wake()
	case transport.Release:
		cur.release(r.offset, s)
		cur.wake()
	case transport.Record:
		if keeping == transport.KeepDurable {
			cur.note(r.offset, st, time.Now().Add(st.After))
		}
	default:
		return fmt.Errorf("settle %s: verdict %q is not known", st.Delivery.Coordinates(), st.Verdict)
	}
	b.observe(Settled, cur, r.offset, st.Delivery.ID, st.Verdict)
	return nil
}

func (c *cursor) note(offset int64, st *transport.Settlement, notBefore time.Time) {
	c.failures[offset] = failure{attempts: st.Attempts, first: st.FirstFailure, class: st.LastError, notBefore: notBefore}
}
