package dedupsql

import (
	"context"
	"sync"
	"time"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

// op is one call of a [Store] on its way into a transaction.
type op struct {
	kind   opKind
	claims []middleware.DedupClaim
	span   time.Duration

	done      chan struct{}
	abandoned bool // nobody waits for it any more; guarded by committer.mu

	// What it came to; set before done is closed.
	state middleware.DedupState
	err   error
}

type opKind uint8

const (
	opClaim opKind = iota
	opRenew
	opDone
	opRelease
)

// committer gathers ops into shared transactions: while one commits, the next
// ones come together. Its goroutine runs only while there is work.
type committer struct {
	flush func(ops []*op) error

	mu      sync.Mutex
	queue   []*op
	running chan struct{} // closed when the goroutine ends; nil while there is none
	closed  bool
}

// maxCommit bounds the ops of one transaction, and so how long a writer of
// another process waits for it.
const maxCommit = 256

// do has an op committed. If ctx ends before, the op may still be: a claim that
// is taken then is given back at once.
func (c *committer) do(ctx context.Context, o *op) error {
	o.done = make(chan struct{})
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return transport.ErrClosed
	}
	c.enqueue(o)
	c.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	default:
		o.abandoned = true
		return ctx.Err()
	}
}

// close lets nothing more in and waits for what is.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	running := c.running
	c.mu.Unlock()
	if running != nil {
		<-running
	}
}

// enqueue is called with the lock held.
func (c *committer) enqueue(o *op) {
	c.queue = append(c.queue, o)
	if c.running == nil {
		c.running = make(chan struct{})
		go c.run(c.running)
	}
}

func (c *committer) run(ended chan struct{}) {
	defer close(ended)
	for {
		c.mu.Lock()
		n := min(len(c.queue), maxCommit)
		if n == 0 {
			c.running = nil
			c.mu.Unlock()
			return
		}
		ops := c.queue[:n:n]
		if c.queue = c.queue[n:]; len(c.queue) == 0 {
			c.queue = nil
		}
		c.mu.Unlock()

		err := c.flush(ops)

		c.mu.Lock()
		for _, o := range ops {
			if err != nil {
				o.err = err
			}
			if o.abandoned && err == nil && o.kind == opClaim && o.state.Status == middleware.DedupFresh {
				o.claims[0].Token = o.state.Token
				c.enqueue(&op{kind: opRelease, claims: o.claims, done: make(chan struct{})})
			}
			close(o.done)
		}
		c.mu.Unlock()
	}
}
