package runtime

import (
	"context"
	"errors"

	"github.com/leat-io/leat/runtime/transport"
)

// receiveLoop pulls with the free credit until ctx ends (nil) or the broker is
// lost.
func (c *consumer) receiveLoop(ctx context.Context, s *session) error {
	for s.pulls = 1; ; {
		n, size := c.awaitCredit(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end asked for
		}
		ds, err := s.c.Receive(ctx, n, size)
		begun, refused := c.admit(s, ds) //nolint:contextcheck // deliveries carry their own
		for _, sp := range begun {
			c.watch(ctx, sp)
		}
		if refused {
			s.flush()
		}
		var need transport.NeedBytes
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end asked for
		case errors.As(err, &need):
			c.mu.Lock()
			c.need = int64(need)
			c.mu.Unlock()
		default:
			return err
		}
	}
}

// awaitCredit waits until enough is free to be worth a pull: a quarter of what
// may be held beyond what runs, or anything at all while slots are empty.
func (c *consumer) awaitCredit(ctx context.Context) (n int, size int64) {
	for {
		c.mu.Lock()
		if n, size = c.free(); n > 0 {
			c.need = 0
			c.mu.Unlock()
			return n, size
		}
		c.hungry = true
		c.mu.Unlock()
		select {
		case <-c.fed:
		case <-ctx.Done():
			return 0, 0
		}
	}
}

// free is the credit to pull with now; 0 where it is better to wait. mu is held.
func (c *consumer) free() (n int, size int64) {
	if c.session == nil || c.session.backlog() {
		return 0, 0
	}
	n, size = c.q.credit(c.need)
	step := min(c.p.Prefetch/4, max(1, (c.p.Prefetch-c.p.Concurrency)/2))
	if n < step && (c.q.ready.n > 0 || c.q.running >= c.p.Concurrency) {
		return 0, 0
	}
	return n, size
}

// feed wakes the receiver if there is credit for it. mu is held.
func (c *consumer) feed() {
	if !c.hungry {
		return
	}
	if n, _ := c.free(); n > 0 {
		c.hungry = false
		select {
		case c.fed <- struct{}{}:
		default:
		}
	}
}

// admit takes a batch into the queue. It returns the spells that began with
// it, and whether some of it was given back at once.
func (c *consumer) admit(s *session, ds []*transport.Delivery) (begun []*spell, refused bool) {
	var last *spell
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Received += int64(len(ds))
	for _, d := range ds {
		if last == nil || last.assignment != d.Assignment {
			var first bool
			switch last, first = c.q.spellOf(d.Assignment, s); {
			case first && d.Assignment.Leaving(): // it has ended on the way here
				last.leaving = true
				c.q.forgetSpell(last)
			case first:
				begun = append(begun, last)
			}
		}
		if last.leaving || last.shut || last.openFrom > s.pulls || c.draining {
			s.settle(transport.Settlement{Delivery: d, Verdict: transport.Release})
			refused = true
			continue
		}
		if c.toldBefore(d) {
			c.count(transport.Duplicate)
			s.settle(transport.Settlement{Delivery: d, Verdict: transport.Ack})
			continue
		}
		it := c.q.admit(d, last)
		it.due = d.NotBefore
		if c.p.AckOnReceive {
			s.settle(transport.Settlement{Delivery: d, Verdict: transport.Ack})
		}
	}
	s.pulls++
	c.wakeWorker()
	c.checkFlow()
	return begun, refused
}

// watch follows the end of a spell.
func (c *consumer) watch(ctx context.Context, sp *spell) {
	end := func() { //nolint:contextcheck // deliveries carry their own
		c.mu.Lock()
		defer c.mu.Unlock()
		c.giveBack(c.q.withdraw(sp, sp.assignment.Revoked()))
		c.wakeWorker()
		c.feed()
		c.checkFlow()
	}
	sp.assignment.OnLeave(end)
	context.AfterFunc(sp.assignment.Context(), func() { //nolint:contextcheck // the spell's, not ours
		if sp.assignment.Revoked() {
			c.log.DebugContext(ctx, "partition revoked", "topic", sp.assignment.Topic, "partition", sp.assignment.Partition)
			end()
		}
	})
}

// giveBack releases items that have not started. mu is held.
func (c *consumer) giveBack(items []*item) {
	for _, it := range items {
		if it.timer != nil {
			it.timer.Stop()
		}
		if !c.p.AckOnReceive {
			it.spell.session.settle(transport.Settlement{Delivery: it.d, Verdict: transport.Release})
		}
	}
}
