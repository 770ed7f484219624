package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// receiveLoop pulls with the free credit until ctx ends (nil) or the session
// is lost.
func (c *consumer) receiveLoop(ctx context.Context, s *session) error {
	for s.pulls = 1; ; {
		n, size := c.awaitCredit(s.ctx)
		if s.ctx.Err() != nil {
			break
		}
		ds, err := s.c.Receive(s.ctx, n, size)
		if len(ds) > 0 && c.p.AckOnReceive {
			if err := c.ackAll(s, ds); err != nil {
				return err
			}
		}
		begun, refused := c.admit(s, ds)
		for _, sp := range begun {
			c.watch(sp)
		}
		if refused {
			c.adjustFlow(s)
			s.flush()
		}
		var need transport.NeedBytes
		switch {
		case err == nil:
		case s.ctx.Err() != nil:
		case errors.As(err, &need):
			c.mu.Lock()
			c.need = int64(need)
			c.mu.Unlock()
		default:
			return err
		}
	}
	if ctx.Err() == nil {
		return context.Cause(s.ctx)
	}
	return nil
}

// ackAll tells the broker of deliveries before any of them runs: at most once.
// What it could not be told is dropped, and comes again.
func (c *consumer) ackAll(s *session, ds []*transport.Delivery) error {
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
	}
	ctx, cancel := context.WithTimeout(s.settling, publishTimeout)
	defer cancel()
	if err := s.c.Settle(ctx, batch); err != nil {
		return fmt.Errorf("ack on receive: %w", err)
	}
	return nil
}

// awaitCredit waits until there is credit to pull with.
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
		case <-time.After(stallAfter):
			c.findStalls()
		case <-ctx.Done():
			return 0, 0
		}
	}
}

// stallAfter is how long an attempt may run before what waits behind it is
// given back to make room for others. It is looked at only while there is no
// credit.
const stallAfter = 5 * time.Second

// findStalls looks for lanes that are held up by an attempt that runs for long.
func (c *consumer) findStalls() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.sinceEpoch()
	for w := range c.pool {
		if since := w.since.Load(); since > 0 && w.it != nil && w.it.state == running && time.Duration(now-since) >= stallAfter {
			c.q.stall(w.it)
		}
	}
	c.checkFlow()
}

// free is the credit to pull with now: a quarter of what may be held beyond
// what runs, or anything at all while slots are empty; else 0, since it is
// better to wait for more. mu is held.
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
		poke(c.fed)
	}
}

// admit takes a batch into the queue. It returns the spells that began with
// it, and whether some of it was given back at once.
func (c *consumer) admit(s *session, ds []*transport.Delivery) (begun []*spell, refused bool) {
	keys := c.keysOf(ds)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Received += int64(len(ds))
	var last *spell
	for i, d := range ds {
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
		if !c.p.AckOnReceive {
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
		}
		key := d.Key
		if keys != nil {
			key = keys[i]
		}
		it := c.q.admit(d, last, key)
		if !d.NotBefore.IsZero() {
			it.due = d.NotBefore
		}
	}
	s.pulls++
	c.wakeWorker()
	c.checkFlow()
	return begun, refused
}

// keysOf gives what the lanes of deliveries go by, where that is not the
// message key; nil where it is. It is the user's code: a delivery for which it
// panics has no key.
func (c *consumer) keysOf(ds []*transport.Delivery) []string {
	if c.p.OrderKey == nil || len(ds) == 0 {
		return nil
	}
	keys := make([]string, len(ds))
	for i, d := range ds {
		keys[i] = c.keyOf(d)
	}
	return keys
}

func (c *consumer) keyOf(d *transport.Delivery) (key string) {
	defer func() {
		if v := recover(); v != nil && !c.keyless.Swap(true) {
			c.log.WarnContext(c.base, "order key panics: such messages are not ordered", "topic", d.Topic, "message_id", d.ID, "panic", fmt.Sprintf("%T", v))
		}
	}()
	return c.p.OrderKey(d)
}

// watch follows the end of a spell.
func (c *consumer) watch(sp *spell) {
	end := func(over bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case !c.p.AckOnReceive:
			c.giveBack(c.q.withdraw(sp, over))
		case over:
			c.lose(c.q.withdraw(sp, over))
		default:
			sp.leaving = true // what is here is ours alone
		}
		if over {
			c.rememberPending(sp)
		}
		c.wakeWorker()
		c.feed()
		c.checkFlow()
	}
	sp.assignment.OnLeave(func() { end(false) })
	sp.assignment.OnRevoke(func() { end(true) })
}

// lose counts what was acked on receipt and cannot run any more. mu is held.
func (c *consumer) lose(items []*item) {
	stopTimers(items)
	if len(items) > 0 {
		c.status.Lost += int64(len(items))
		c.say("messages lost that were acked on receipt", "count", len(items))
	}
}

func stopTimers(items []*item) {
	for _, it := range items {
		if it.timer != nil {
			it.timer.Stop()
		}
	}
}

// giveBack releases items that have not started. mu is held.
func (c *consumer) giveBack(items []*item) {
	stopTimers(items)
	for _, it := range items {
		it.spell.session.settle(transport.Settlement{Delivery: it.d, Verdict: transport.Release})
	}
}
