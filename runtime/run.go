package runtime

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// result is what one run of the chain came to, before anything was confirmed.
type result struct {
	outcome transport.Outcome
	err     error
	text    string        // of err, capped
	class   string        // of err
	n       int           // the attempt it was
	wait    time.Duration // of Retried and Waiting
	block   bool          // Retried, since the dead letter is "block"
	reason  string        // of Dead
	dead    transport.DeadLetter
	outputs []transport.Output
	hooks   []transport.Hook
}

// slow tells whether something must be confirmed before the item is done.
func (r *result) slow() bool {
	return len(r.outputs) > 0 || len(r.hooks) > 0 ||
		r.outcome == transport.Dead && r.dead.Mode == transport.DeadToTopic
}

// run makes one attempt. It survives a panic anywhere in the chain; a Goexit
// ends the worker, which accounts for it.
func (c *consumer) run(w *worker) (r result) {
	w.since.Store(int64(time.Since(c.epoch)))
	it := w.it
	w.a = transport.NewAttempt(it.d, c.name, c.p.Group, it.attempts+1, it.first)
	defer func() {
		if v := recover(); v != nil {
			r = c.judge(w, nil, &transport.Panicked{Value: v, Stack: debug.Stack()})
		}
	}()
	msg := w.a.Message()
	out, err := c.chain(msg)
	if err == nil && settledByHand(msg) {
		c.warnSettled()
	}
	return c.judge(w, out, err)
}

// settledByHand tells whether a handler called Ack or Nack, which changes
// nothing here.
func settledByHand(m *message.Message) bool {
	for _, ch := range [...]<-chan struct{}{m.Acked(), m.Nacked()} {
		select {
		case <-ch:
			return true
		default:
		}
	}
	return false
}

// judge is the one place where what a chain returned becomes an outcome.
func (c *consumer) judge(w *worker, out []*message.Message, err error) result {
	outputs, hooks, mark := w.a.End()
	r := result{outcome: transport.Handled, err: err, n: w.a.Number(), outputs: outputs, hooks: hooks}
	if err == nil {
		for _, m := range out {
			r.outputs = append(r.outputs, transport.Output{Topic: c.p.PublishTo, Message: m})
		}
		return r
	}
	r.outputs = nil
	r.text, r.class = brief(cause(err)), transport.Class(err) // here, where a panic of its methods is survived
	if w.a.Err() != nil {
		r.outcome = transport.Interrupted
		return r
	}
	d := c.p.Retry.Decide(err, r.n)
	r.wait, r.reason = d.After, d.Reason
	switch d.Action {
	case transport.ActionDuplicate:
		r.outcome = transport.Duplicate
	case transport.ActionSkip:
		r.outcome = transport.Skipped
	case transport.ActionWait:
		r.outcome = transport.Waiting
		if d.Spent {
			r.outcome = transport.Retried
		}
	case transport.ActionDead:
		r.dead = c.p.DeadLetter
		if mark != nil {
			r.dead, r.reason, r.err = mark.Policy, mark.Reason, mark.Err
		}
		c.bury(&r)
	}
	return r
}

// bury makes a result dead, or, where the dead letter is "block", one more wait.
func (c *consumer) bury(r *result) {
	if r.dead.Mode == transport.DeadBlock {
		r.outcome, r.wait, r.block = transport.Retried, c.p.Retry.MaxInterval(), true
		return
	}
	r.outcome = transport.Dead
}

// ran takes a result in. What is slow goes on beside the worker, whose slot is
// free from here on. mu is held.
func (c *consumer) ran(w *worker, r result) {
	it := w.it
	w.since.Store(0)
	if r.slow() {
		c.q.returned(it)
		go c.confirm(it, r)
		return
	}
	c.finishItem(it, r)
}

// finishItem settles an item whose result is confirmed. mu is held.
func (c *consumer) finishItem(it *item, r result) {
	c.count(r.outcome)
	switch r.outcome {
	case transport.Handled, transport.Skipped, transport.Duplicate, transport.Dead:
		if r.outcome == transport.Dead {
			c.noteFailure(it, r)
		}
		c.end(it, transport.Settlement{Delivery: it.d, Verdict: transport.Ack}, true)
	case transport.Retried, transport.Waiting:
		c.again(it, r)
	case transport.Interrupted:
		c.end(it, transport.Settlement{Delivery: it.d, Verdict: transport.Release}, false)
	}
	c.wakeWorker()
	c.feed()
	c.checkFlow()
	c.checkQuiet()
}

// end lets go of an item and has the broker told. mu is held.
func (c *consumer) end(it *item, st transport.Settlement, finished bool) {
	s, lost, plain := it.spell.session, it.lost, it.leader == nil && it.follower == nil && it.timer == nil
	var due time.Time
	if it.follower != nil {
		due = time.Now().Add(st.After)
	}
	absorbed := c.q.done(it, finished, due)
	switch {
	case c.p.AckOnReceive:
	case lost || s != c.session:
		if st.Verdict == transport.Ack && absorbed == nil {
			c.remember(st.Delivery)
		}
	default:
		s.settle(st)
	}
	if absorbed != nil && !c.p.AckOnReceive {
		c.count(transport.Duplicate)
		absorbed.spell.session.settle(transport.Settlement{Delivery: absorbed.d, Verdict: transport.Ack})
	}
	if plain && !lost {
		c.q.recycle(it)
	}
}

// again has an item run once more after a wait: parked here, or given back to
// a broker that can delay it. mu is held.
func (c *consumer) again(it *item, r result) {
	if r.outcome == transport.Retried {
		c.noteFailure(it, r)
	}
	st := transport.Settlement{
		Delivery: it.d, Verdict: transport.Release, After: r.wait,
		Attempts: it.attempts, FirstFailure: it.first, LastError: it.lastError,
	}
	leaves := c.draining || it.spell.leaving
	overtakes := c.p.RetryOrder == transport.RetryOvertake || it.lane == nil
	durable := c.caps.DurableDelay && overtakes && !c.p.AckOnReceive
	switch {
	case it.lost:
		c.end(it, st, false)
	case durable && (r.wait > c.p.MaxPark || leaves || c.q.heldOver()):
		st.Verdict = transport.Delay
		c.end(it, st, false)
	case leaves:
		c.record(it, st)
		c.end(it, st, false)
	default:
		c.record(it, st)
		c.parkFor(it, r.wait)
	}
}

// record leaves a failed attempt with the message, where the broker can keep
// that while we hold it. mu is held.
func (c *consumer) record(it *item, st transport.Settlement) {
	if st.Attempts > it.d.Attempts && c.caps.Attempts == transport.KeepDurable && !c.p.AckOnReceive {
		st.Verdict = transport.Record
		it.spell.session.settle(st)
	}
}

// notDue parks an item that has come to its turn before its time. mu is held.
func (c *consumer) notDue(it *item) bool {
	wait := time.Until(it.due)
	it.due = time.Time{}
	if wait > 0 {
		c.parkFor(it, wait)
	}
	return wait > 0
}

// parkFor puts an item to sleep. mu is held.
func (c *consumer) parkFor(it *item, wait time.Duration) {
	c.q.park(it)
	var t *time.Timer
	t = time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if it.state != parked || it.timer != t {
			return
		}
		c.q.wake(it)
		c.wakeWorker()
		c.feed()
		c.checkFlow()
	})
	it.timer = t
}

// noteFailure takes a failed attempt into the item and the status. mu is held.
func (c *consumer) noteFailure(it *item, r result) {
	now := time.Now()
	it.attempts = r.n
	if it.first.IsZero() {
		it.first = now
	}
	it.lastError = r.class
	c.status.LastError, c.status.LastErrorAt = r.text, now
	if r.outcome == transport.Dead && r.dead.Mode == transport.DeadToTopic {
		return // logged with its dead letter
	}
	if n, ok := c.noisy.allow(now); ok {
		c.log.WarnContext(c.base, "attempt failed", "topic", it.d.Topic, "message_id", it.d.ID,
			"attempt", r.n, "outcome", r.outcome.String(), "wait", r.wait, "error", c.status.LastError, "not_logged", n)
	}
}

// cause is why a link asks to wait, if it does; else the error itself.
func cause(err error) error {
	if w, ok := errors.AsType[*transport.Wait](err); ok && w.Err != nil {
		return w.Err
	}
	return err
}

// brief caps the text of an error for logs and status.
func brief(err error) string {
	if err == nil {
		return ""
	}
	return transport.CapText(err.Error(), 512)
}

// warnSettled tells once that Ack and Nack of a handler are without effect.
func (c *consumer) warnSettled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.status.SettledByHand {
		c.status.SettledByHand = true
		c.log.WarnContext(c.base, "handler called Ack or Nack itself: that changes nothing, return an error instead")
	}
}

// confirm publishes outputs or the dead letter of an item and calls its hooks,
// each repeated alone until it is done, or until the drain runs out of time.
func (c *consumer) confirm(it *item, r result) {
	if r.outcome == transport.Handled && len(r.outputs) > 0 {
		if err := c.publishOutputs(it, r.outputs); err != nil {
			c.failOutputs(&r, err)
		}
	}
	if r.outcome == transport.Dead && r.dead.Mode == transport.DeadToTopic {
		if err := c.publishDead(it, r); err != nil {
			r.outcome = transport.Interrupted
		}
	}
	for _, h := range r.hooks {
		if !c.settleHook(h, r.outcome) {
			r.outcome = transport.Interrupted
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishItem(it, r)
}

// failOutputs takes an output that can never be published for a permanent
// failure of its message.
func (c *consumer) failOutputs(r *result, err error) {
	if c.base.Err() != nil {
		r.outcome = transport.Interrupted
		return
	}
	r.err, r.text, r.class = err, brief(err), transport.Class(err)
	r.reason, r.dead = transport.ReasonUnpublished, c.p.DeadLetter
	c.bury(r)
}

// settleHook calls a hook until it returns nil; false if the drain ran out of time.
func (c *consumer) settleHook(h transport.Hook, o transport.Outcome) bool {
	return c.persist("settlement hook", func(ctx context.Context) error { return callHook(ctx, h, o) }) == nil
}

func callHook(ctx context.Context, h transport.Hook, o transport.Outcome) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &transport.Panicked{Value: v, Stack: debug.Stack()}
		}
	}()
	return h(ctx, o)
}

var errNoPublishTo = errors.New("handler returned a message, and the consumer has no publish_to")
