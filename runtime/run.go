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
	reason  string        // of Dead
	dead    transport.DeadLetter
	outputs []transport.Output
	hooks   []transport.Hook
	trace   context.Context //nolint:containedctx // with the attempt's span, which is not ended; nil if there is none
}

// slow tells whether something must be confirmed before the item is done.
func (r *result) slow() bool {
	return len(r.outputs) > 0 || len(r.hooks) > 0 ||
		r.outcome == transport.Dead && r.dead.Mode != transport.DeadDrop
}

// run makes one attempt. It survives a panic anywhere in the chain; a Goexit
// ends the worker, which accounts for it.
func (c *consumer) run(w *worker) {
	if c.durations != nil {
		w.since.Store(c.sinceEpoch())
	}
	it := w.it
	w.a = transport.NewAttempt(it.d, c.name, c.p.Group, it.attempts+1, it.first)
	defer func() {
		if v := recover(); v != nil {
			c.conclude(w, nil, &transport.Panicked{Value: v, Stack: debug.Stack()})
		}
	}()
	msg := w.a.Message()
	c.beginSpan(w, msg)
	out, err := c.chain(msg)
	if err == nil && settledByHand(msg) {
		c.warnSettled()
	}
	c.conclude(w, out, err)
}

// settledByHand tells whether a handler called Ack or Nack, which changes
// nothing here.
func settledByHand(m *message.Message) bool {
	return m.Acked() != nil || m.Nacked() != nil // ours has no channels before that
}

// warnSettled tells once that Ack and Nack of a handler are without effect.
func (c *consumer) warnSettled() {
	if !c.settledByHand.Swap(true) {
		c.log.WarnContext(c.base, "handler called Ack or Nack itself: that changes nothing, return an error instead")
	}
}

// conclude judges an attempt and tells of it. It survives errors whose own
// methods panic.
func (c *consumer) conclude(w *worker, out []*message.Message, err error) {
	defer c.observeAttempt(w)
	defer func() {
		if recover() != nil {
			c.judge(w, nil, &transport.Panicked{Value: "the error of the handler panics", Stack: debug.Stack()})
		}
	}()
	c.judge(w, out, err)
}

// judge is the one place where what a chain returned becomes an outcome.
func (c *consumer) judge(w *worker, out []*message.Message, err error) {
	outputs, hooks, mark := w.a.End()
	w.r = result{outcome: transport.Handled, err: err, n: w.a.Number(), outputs: outputs, hooks: hooks}
	r := &w.r
	if err == nil {
		for _, m := range out {
			r.outputs = append(r.outputs, transport.Output{Topic: c.p.PublishTo, Message: m})
		}
		return
	}
	r.outputs = nil
	r.text, r.class = brief(cause(err)), transport.Class(err)
	switch {
	case w.a.Err() != nil:
		r.outcome = transport.Interrupted
		return
	case transport.Interrupts(err): // of something else than this worker
		r.outcome, r.wait = transport.Waiting, c.p.Retry.Wait(r.n)
		return
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
			r.reason, r.err = mark.Reason, mark.Err
			if mark.Policy.Mode != "" {
				r.dead = mark.Policy
			}
		}
		c.bury(r)
	}
}

// bury makes a result dead, or, where the dead letter is "block", one more wait.
func (c *consumer) bury(r *result) {
	if r.dead.Mode == transport.DeadBlock {
		r.outcome, r.wait = transport.Retried, c.p.Retry.MaxInterval()
		return
	}
	r.outcome = transport.Dead
}

// finishItem settles an item whose result is confirmed. mu is held.
func (c *consumer) finishItem(it *item, r *result) {
	c.count(r.outcome)
	switch r.outcome {
	case transport.Handled, transport.Skipped, transport.Duplicate, transport.Dead:
		if r.outcome == transport.Dead {
			c.countDead(r.reason)
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
		if !finished {
			c.status.Lost++
		}
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

// shortestWait keeps a link that asks for no wait at all from spinning.
const shortestWait = 10 * time.Millisecond

// again has an item run once more after a wait: parked here, or given back to
// a broker that can delay it, or that keeps it in its place while the partition
// is paused. mu is held.
func (c *consumer) again(it *item, r *result) {
	if r.outcome == transport.Retried {
		c.noteFailure(it, r)
	}
	r.wait = max(r.wait, shortestWait)
	st := transport.Settlement{
		Delivery: it.d, Verdict: transport.Release, After: r.wait,
		Attempts: it.attempts, FirstFailure: it.first, LastError: it.lastError,
	}
	leaves := (c.draining || it.spell.leaving) && !c.p.AckOnReceive
	overtakes := c.p.RetryOrder == transport.RetryOvertake || it.lane == nil
	durable := c.caps.DurableDelay && overtakes && !c.p.AckOnReceive
	switch {
	case it.lost:
		c.end(it, st, false)
	case durable && (r.wait > c.p.MaxPark || leaves || !c.q.mayPark(it)):
		st.Verdict = transport.Delay
		c.end(it, st, false)
	case leaves:
		c.record(it, st)
		c.end(it, st, false)
	case !c.q.mayPark(it) && c.canPutBack():
		c.record(it, st)
		c.putBack(it, r.wait)
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

// canPutBack tells whether the broker can take a waiting message back and keep
// it, its attempts and what is behind it in their place.
func (c *consumer) canPutBack() bool {
	return c.caps.ReleaseInOrder && c.caps.Attempts == transport.KeepDurable && !c.p.AckOnReceive
}

// putBack gives back an item that must wait, and what waits behind it, where
// too much is held by order already. Its partition is paused for as long, up
// to longestRest. mu is held.
func (c *consumer) putBack(it *item, wait time.Duration) {
	sp := it.spell
	behind := c.q.clear(it)
	sp.session.settle(transport.Settlement{Delivery: it.d, Verdict: transport.Release})
	c.giveBack(behind)
	sp.shut = true
	if !sp.resting {
		sp.resting = true
		time.AfterFunc(min(wait, longestRest), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			sp.resting = false
			poke(sp.session.flow)
		})
	}
	poke(sp.session.flow)
}

// longestRest bounds how long a partition is paused at least from which
// something was put back, so that it does not come again at once.
const longestRest = time.Second

// notDue parks an item that has come to its turn before its time. mu is held.
func (c *consumer) notDue(it *item) bool {
	wait := time.Until(it.due)
	it.due = time.Time{}
	if wait <= 0 {
		return false
	}
	if !c.q.mayPark(it) && c.canPutBack() {
		c.putBack(it, wait)
	} else {
		c.parkFor(it, wait)
	}
	c.checkFlow()
	return true
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
func (c *consumer) noteFailure(it *item, r *result) {
	now := time.Now()
	it.attempts = r.n
	if it.first.IsZero() {
		it.first = now
	}
	it.lastError = r.class
	c.status.LastError, c.status.LastErrorAt = r.text, now
	if r.outcome == transport.Dead && r.dead.Mode != transport.DeadDrop {
		return // logged with its dead letter
	}
	if n, ok := c.noisy.allow(now); ok {
		c.say("attempt failed", "topic", it.d.Topic, "message_id", it.d.ID,
			"attempt", r.n, "outcome", r.outcome.String(), "wait", r.wait, "error", r.text, "not_logged", n)
	}
}

// say logs a warning while mu is held, so from another goroutine: a log's
// handler may ask for the status, or stand still. One at a time.
func (c *consumer) say(msg string, args ...any) {
	if c.saying.Swap(true) {
		return
	}
	go func() {
		defer c.saying.Store(false)
		c.log.WarnContext(c.base, msg, args...) //nolint:sloglint // the callers' are static
	}()
}

// cause is why a link asks to wait, if it does; else the error itself.
func cause(err error) error {
	if w, ok := errors.AsType[*transport.Wait](err); ok && w.Err != nil {
		return w.Err
	}
	return err
}

// brief caps the text of an error for logs and status.
func brief(err error) string { return transport.ErrorText(err, 512) }
