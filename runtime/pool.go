package runtime

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/leat-io/leat/runtime/transport"
)

// Workers are woken lazily. An eager pool, in which every message wakes a
// goroutine, loses a quarter of the speed of a fast handler; here idle workers
// form a stack, at most one is being woken at a time, and one that has just
// taken an item wakes the next only if more is ready. So a fast handler keeps
// to one or two workers, and a slow one fans out to the limit in microseconds.
type worker struct {
	wake  chan struct{} // buffered, so that waking never blocks
	it    *item         // what it runs; nil while idle
	a     *transport.Attempt
	since atomic.Int64 // when the attempt began, since the epoch of the consumer
}

// wakeWorker wakes one worker if there is something for it to do. mu is held.
func (c *consumer) wakeWorker() {
	if c.waking || c.q.ready.n == 0 || c.q.running >= c.p.Concurrency || c.draining {
		return
	}
	if n := len(c.idle); n > 0 {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.waking = true
		w.wake <- struct{}{}
		return
	}
	if c.workers < c.p.Concurrency {
		c.workers++
		c.waking = true
		w := &worker{wake: make(chan struct{}, 1)}
		c.pool[w] = struct{}{}
		go c.work(w)
	}
}

// work runs items until the consumer drains. Finishing one and taking the next
// is one turn of the lock.
func (c *consumer) work(w *worker) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// The handler ended this goroutine with Goexit: a failed attempt, and
		// another worker takes this one's place.
		r := c.judge(w, nil, &transport.Panicked{Stack: debug.Stack()})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.workers--
		delete(c.pool, w)
		c.ran(w, r)
		c.wakeWorker()
	}()
	c.mu.Lock()
	c.waking = false
	for c.take(w) {
		c.mu.Unlock()
		r := c.run(w)
		c.mu.Lock()
		c.ran(w, r)
	}
	c.workers--
	delete(c.pool, w)
	c.mu.Unlock()
	returned = true
}

// take gives w its next item; false when the consumer drains. mu is held.
func (c *consumer) take(w *worker) bool {
	for !c.draining {
		if w.it = c.q.take(); w.it != nil {
			if !w.it.due.IsZero() && c.notDue(w.it) {
				continue
			}
			c.wakeWorker()
			return true
		}
		c.idle = append(c.idle, w)
		c.mu.Unlock()
		<-w.wake
		c.mu.Lock()
		c.waking = false
	}
	return false
}
