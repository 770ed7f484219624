package amqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// ackLinger is how long an ack waits for those before it, to be told with
// them, while none of them comes.
const ackLinger = 10 * time.Millisecond

// firstTry is how long Settle waits for delays to be confirmed. What takes
// longer goes on beside it, so that publishers who are blocked stop no ack.
const firstTry = time.Second

// Settle acks, delays, or hands out again. An ack behind a delivery that is not
// settled may wait for it, for some milliseconds.
func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	for i := range batch {
		switch st := &batch[i]; st.Verdict {
		case transport.Ack, transport.Release, transport.Record:
		case transport.Delay:
			if !c.t.Capabilities().DurableDelay {
				return fmt.Errorf("delay: %w", transport.ErrUnsupported)
			}
		default:
			return fmt.Errorf("settle %s: there is no verdict %d", st.Delivery.Coordinates(), st.Verdict)
		}
	}
	var delayed []<-chan struct{}
	var errs []error
	for _, s := range c.subs {
		delayed = append(delayed, s.settle(batch)...)
		errs = append(errs, s.flush(false))
	}
	if len(delayed) == 0 {
		return errors.Join(errs...)
	}
	ctx, cancel := context.WithTimeout(ctx, firstTry)
	defer cancel()
	for _, tried := range delayed {
		select {
		case <-tried:
		case <-ctx.Done():
		}
	}
	return errors.Join(errs...)
}

// settle applies what is of this subscription and of its last hand-over.
func (s *subscription) settle(batch []transport.Settlement) (delayed []<-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		st := &batch[i]
		h, ok := st.Delivery.Tag.(*handed)
		if !ok || h.s != s || h.out != st.Delivery || s.over {
			continue
		}
		switch st.Verdict {
		case transport.Ack:
			h.out = nil
			s.ack(h)
		case transport.Release:
			again := *h.out
			s.putBack(h, &again)
		case transport.Delay:
			h.out = nil
			delayed = append(delayed, s.c.late.add(h, *st))
		case transport.Record:
		}
	}
	return delayed
}

// ack has the broker told that h is done with. mu is held.
func (s *subscription) ack(h *handed) {
	h.acked = true
	s.open--
	s.ahead = append(s.ahead, h)
}

// frame is one ack to the broker.
type frame struct {
	tag      uint64
	multiple bool
}

// flush tells the broker of the longest prefix of acks with one frame. Those
// behind a delivery that is not settled are told one by one when they are many,
// have waited, or all is to be told.
func (s *subscription) flush(all bool) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	acks := s.acks(all)
	if len(acks) > 1 {
		s.c.conn.raw.cork()
		defer s.c.conn.raw.uncork()
	}
	for _, a := range acks {
		if err := s.ch.Ack(a.tag, a.multiple); err != nil {
			return fmt.Errorf("ack to queue %q: %w", s.queue, explain(err))
		}
	}
	return nil
}

func (s *subscription) acks(all bool) []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.ahead) == 0 {
		return nil
	}
	var acks []frame
	s.toldAt = time.Now()
	n := 0
	for h := s.first; h != nil && h.acked; h = s.first {
		s.unlink(h)
		n++
		acks = []frame{{h.tag, n > 1}}
		s.moved = true
	}
	left := s.ahead[:0]
	for _, h := range s.ahead {
		if !h.told {
			left = append(left, h)
		}
	}
	clear(s.ahead[len(left):])
	s.ahead = left
	if len(left) == 0 {
		return acks
	}
	if !all && len(left) < max(1, s.prefetch/4) {
		s.wait()
		return acks
	}
	for i, h := range left {
		s.unlink(h)
		acks = append(acks, frame{h.tag, false})
		left[i] = nil
	}
	s.ahead = left[:0]
	return acks
}

// wait has what is ahead told in a while. mu is held.
func (s *subscription) wait() {
	switch {
	case s.lingers:
		return
	case s.linger == nil:
		s.linger = time.AfterFunc(ackLinger, s.lingered)
	default:
		s.linger.Reset(ackLinger)
	}
	s.lingers, s.moved = true, false
}

func (s *subscription) lingered() {
	s.mu.Lock()
	moved := s.moved && !s.over
	if s.lingers, s.moved = moved, false; moved {
		s.linger.Reset(ackLinger)
	}
	s.mu.Unlock()
	if moved {
		return
	}
	if err := s.flush(true); err != nil {
		s.c.fail(err)
	}
}
