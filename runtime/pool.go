package runtime

import (
	"context"
	"runtime/debug"
	"sync/atomic"

	"github.com/leat-io/leat/runtime/transport"
)

// Workers are woken lazily. An eager pool, in which every message wakes a
// goroutine, loses a quarter of the speed of a fast handler; here idle workers
// form a stack, at most one is being woken at a time, and one that has just
// taken an item wakes the next only if more is ready. So a fast handler keeps
// to one or two workers, and a slow one fans out to the limit in microseconds.
//
// A worker whose handler has returned confirms outputs, dead letter and hooks
// itself. Its slot is free meanwhile: there are as many workers as slots, and
// one more for each item that is being confirmed.
type worker struct {
	wake  chan struct{} // buffered, so that waking never blocks
	it    *item         // what it has in hand; nil while idle
	a     *transport.Attempt
	r     result          // of the attempt
	since atomic.Int64    // when the attempt began, since the epoch of the consumer; 0: none runs
	trace context.Context //nolint:containedctx // with the attempt's span; nil where there are no spans
}

// wakeWorker wakes one worker if there is something for it to do. mu is held.
func (c *consumer) wakeWorker() {
	if c.waking || c.q.ready.n == 0 || c.q.running >= c.p.Concurrency || c.startsNothing() {
		return
	}
	if n := len(c.idle); n > 0 {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.waking = true
		w.wake <- struct{}{}
		return
	}
	if c.workers < c.p.Concurrency+c.q.closing {
		c.workers++
		c.waking = true
		w := &worker{wake: make(chan struct{}, 1)}
		c.pool[w] = struct{}{}
		go c.work(w)
	}
}

// wakeIdle wakes all idle workers, so that they end where nothing starts any
// more. mu is held.
func (c *consumer) wakeIdle() {
	for _, w := range c.idle {
		w.wake <- struct{}{}
	}
	c.idle = nil
}

// startsNothing tells whether the drain has come so far that no attempt begins
// any more. What was acked on receipt still runs: the broker has forgotten it.
func (c *consumer) startsNothing() bool {
	return c.draining && (!c.p.AckOnReceive || c.q.count == 0 || c.base.Err() != nil)
}

// work runs items until the consumer drains. Finishing one and taking the next
// is one turn of the lock.
func (c *consumer) work(w *worker) {
	returned := false
	defer func() {
		if !returned {
			c.replace(w)
		}
	}()
	c.mu.Lock()
	c.waking = false
	for c.take(w) {
		c.mu.Unlock()
		c.run(w)
		if w.r.slow() {
			c.mu.Lock()
			c.q.returned(w.it)
			c.wakeWorker()
			c.mu.Unlock()
			c.confirm(w)
		}
		c.mu.Lock()
		c.finishItem(w.it, &w.r)
	}
	c.retire(w)
	c.mu.Unlock()
	returned = true
}

// replace accounts for a worker whose goroutine was ended by Goexit, in the
// handler or in a hook, and lets another take its place.
func (c *consumer) replace(w *worker) {
	if w.since.Load() > 0 { // in the chain: a failed attempt
		c.conclude(w, nil, &transport.Panicked{Stack: debug.Stack()})
	} else { // while confirming: what is left of it is for another run
		w.r = result{outcome: transport.Waiting, wait: c.p.Retry.MaxInterval()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.r.slow() {
		c.q.returned(w.it)
		go c.confirmApart(w) // a goroutine that is being ended cannot wait
		c.wakeWorker()
		return
	}
	c.finishItem(w.it, &w.r)
	c.retire(w)
	c.wakeWorker()
}

// confirmApart confirms the item of a worker whose goroutine has ended.
func (c *consumer) confirmApart(w *worker) {
	confirmed := false
	defer func() {
		if !confirmed { // a hook has ended this goroutine too
			w.r = result{outcome: transport.Waiting, wait: c.p.Retry.MaxInterval()}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.finishItem(w.it, &w.r)
		c.retire(w)
		c.wakeWorker()
	}()
	c.confirm(w)
	confirmed = true
}

// retire takes a worker out of the pool. mu is held.
func (c *consumer) retire(w *worker) {
	w.it, w.a, w.r = nil, nil, result{}
	c.workers--
	delete(c.pool, w)
}

// take gives w its next item; false when w is to end: the consumer drains, or
// there are more workers than needed. mu is held.
func (c *consumer) take(w *worker) bool {
	for slept := false; !c.startsNothing(); slept = true {
		w.it = nil
		if c.q.running < c.p.Concurrency {
			w.it = c.q.take()
		}
		if w.it != nil {
			if !w.it.due.IsZero() && c.notDue(w.it) {
				continue
			}
			if slept {
				w.since.Store(c.sinceEpoch())
			} else {
				w.since.Store(c.begin())
			}
			c.wakeWorker()
			return true
		}
		if c.workers > c.p.Concurrency+c.q.closing {
			return false
		}
		w.a, w.r = nil, result{}
		c.idle = append(c.idle, w)
		c.mu.Unlock()
		<-w.wake
		c.mu.Lock()
		c.waking = false
	}
	w.it = nil
	return false
}
