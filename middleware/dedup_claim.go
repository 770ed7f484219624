package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// claim is one key held by one run.
type claim struct {
	DedupClaim

	d   *dedup
	age int // ticks of the keeper since the lease was last given; guarded by keeper.mu
}

// settle is the hook of a claim.
func (c *claim) settle(ctx context.Context, o transport.Outcome) error {
	switch o {
	case transport.Handled, transport.Skipped:
		return c.done(ctx)
	case transport.Duplicate, transport.Waiting, transport.Retried, transport.Dead, transport.Interrupted:
	}
	// A claim that could not be given back ends with its lease.
	if err := c.release(ctx); err != nil && ctx.Err() == nil {
		c.d.storeFailed(ctx, "release", err)
	}
	return nil
}

// done marks the key. While that fails, the claim is kept alive, unless ctx
// has ended and nobody will ask again.
func (c *claim) done(ctx context.Context) error {
	err := c.d.Store.Done(ctx, c.DedupClaim, c.d.Window)
	if errors.Is(err, ErrLost) {
		c.d.keeper.remove(c)
		c.d.Log.WarnContext(ctx, "dedup claim was taken over while the message was handled, it may be handled twice",
			"scope", c.Scope, "lease", c.d.Lease)
		return nil
	}
	if err != nil && ctx.Err() == nil {
		c.d.storeFailed(ctx, "done", err)
		return err
	}
	c.d.keeper.remove(c)
	return err
}

func (c *claim) release(ctx context.Context) error {
	c.d.keeper.remove(c)
	return c.d.Store.Release(ctx, c.DedupClaim)
}

// keeper renews the claims of one Dedup, all in one call, from a timer that is
// armed only while something is held.
//
// It counts age in ticks of a fifth of the lease, so a short run costs no look
// at the clock and no renewal: a claim is renewed when it is one to two ticks
// old, and if that fails there is time for two more tries.
type keeper struct {
	store  DedupStore
	lease  time.Duration
	failed func(ctx context.Context, op string, err error)

	mu    sync.Mutex
	held  map[*claim]struct{}
	timer *time.Timer
	armed bool
}

func (k *keeper) add(c *claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[c] = struct{}{}
	if !k.armed {
		k.arm()
	}
}

func (k *keeper) remove(c *claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, c)
}

// arm is called with the lock held.
func (k *keeper) arm() {
	k.armed = true
	if k.timer == nil {
		k.timer = time.AfterFunc(k.lease/5, k.tick)
		return
	}
	k.timer.Reset(k.lease / 5)
}

func (k *keeper) tick() {
	k.mu.Lock()
	if k.armed = len(k.held) > 0; !k.armed {
		k.mu.Unlock()
		return
	}
	var due []DedupClaim
	var old []*claim
	for c := range k.held {
		if c.age++; c.age >= 2 {
			due, old = append(due, c.DedupClaim), append(old, c)
		}
	}
	k.mu.Unlock()

	var err error
	if len(due) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), k.lease/5)
		defer cancel()
		if err = k.store.Renew(ctx, k.lease, due...); err != nil {
			k.failed(ctx, "renew", err)
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		for _, c := range old {
			c.age = 0
		}
	}
	k.arm()
}
