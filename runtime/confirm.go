package runtime

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// confirm publishes outputs or the dead letter of a worker's item and calls
// its hooks, each repeated alone until it is done, or until the drain runs out
// of time.
func (c *consumer) confirm(w *worker) {
	it, r := w.it, &w.r
	if r.outcome == transport.Handled && len(r.outputs) > 0 {
		if err := c.publishOutputs(it, r); err != nil {
			c.failOutputs(r, err)
		}
	}
	if r.outcome == transport.Dead && r.dead.Mode != transport.DeadDrop {
		if err := c.publishDead(it, r); err != nil {
			r.outcome = transport.Interrupted
		}
	}
	for _, h := range r.hooks {
		if !c.settleHook(h, r.outcome) {
			r.outcome = transport.Interrupted
		}
	}
	c.endSpan(r)
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

// settleHook calls a hook until it returns nil; false if the drain ran out of
// time. After that it is called once more, so that a claim is let go.
func (c *consumer) settleHook(h transport.Hook, o transport.Outcome) bool {
	err := c.persist(stepHook, "", func(ctx context.Context) error { return callHook(ctx, publishTimeout, h, o) })
	if err == nil {
		return true
	}
	return callHook(context.WithoutCancel(c.base), cancelGrace, h, transport.Interrupted) == nil && o == transport.Interrupted
}

func callHook(ctx context.Context, limit time.Duration, h transport.Hook, o transport.Outcome) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &transport.Panicked{Value: v, Stack: debug.Stack()}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h(ctx, o)
}

// persist tries something with growing waits until it succeeds. While it does
// not, the consumer's status says so. It returns an error only when the drain
// ran out of time.
func (c *consumer) persist(s step, topic string, try func(ctx context.Context) error) error {
	for tries := 1; ; tries++ {
		if c.base.Err() != nil {
			return context.Cause(c.base)
		}
		err := try(c.base)
		if err == nil {
			if tries > 1 {
				c.clearTrouble(s, topic)
			}
			return nil
		}
		c.setTrouble(s, topic, err)
		select {
		case <-time.After(reopenWait(tries)):
		case <-c.base.Done():
			return err
		}
	}
}

var errNoPublishTo = errors.New("handler returned a message, and the consumer has no publish_to")
