package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
)

const (
	renewals        = 5                     // in one lease
	hungry          = 5                     // times as often while we have less than our share
	maxForeignLease = time.Minute           // that another member is believed to have
	safety          = 10                    // part of a lease by which ours ends early
	dueSpaced       = 20 * time.Millisecond // between two rounds of putting delayed rows back
)

// keep renews leases, shares partitions out, hands them over, and puts delayed
// rows back, until ctx ends.
func (c *consumer) keep(ctx context.Context) {
	defer close(c.kept)
	members, cancel := c.db.Subscribe(c.memberSignals()...)
	defer cancel()
	every := c.t.o.lease / renewals
	next := time.Now().Add(every)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		timer.Reset(max(0, time.Until(c.earliest(next))))
		select {
		case <-ctx.Done():
			return
		case <-members:
			next = time.Now()
		case <-c.act:
		case <-timer.C:
		}
		if began := time.Now(); !began.Before(next) { // first: the rest may take as long as leases last
			if err := c.tick(ctx); err != nil && ctx.Err() == nil && !c.passing(err) {
				c.fail(err)
				return
			}
			next = began.Add(every) // a tick that takes long must not put the next one off
			if c.starving() {
				next = time.Now().Add(every / hungry)
			}
		}
		c.handOver(ctx)
		c.bury(ctx)
		c.putBack(ctx)
		c.fillIn(ctx)
	}
}

func (c *consumer) memberSignals() []string {
	names := make([]string, len(c.cfg.Topics))
	for i, t := range c.cfg.Topics {
		names[i] = memberOf + t
	}
	return names
}

func (c *consumer) wakeMembers() {
	for _, name := range c.memberSignals() {
		c.db.Wake(name)
	}
}

// passing tells whether an error is one that the next tick may not meet: the
// database is locked or busy, and meanwhile leases may run out.
func (c *consumer) passing(err error) bool {
	if !sqldb.Busy(err) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if c.cfg.Log != nil {
		c.cfg.Log.Warn("lease not renewed", "consumer", c.cfg.Name, "error", err)
	}
	return true
}

// earliest is when the keeper has to do something next.
func (c *consumer) earliest(next time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, src := range c.sources {
		if !src.due.IsZero() && src.due.Before(next) {
			next = src.due
		}
	}
	for _, s := range c.spells {
		if !s.leaveBy.IsZero() && s.leaveBy.Before(next) {
			next = s.leaveBy
		}
	}
	return next
}

// expire revokes what was not renewed within its lease, by our own clock: the
// database may be out of reach, and somebody else may own it by now.
func (c *consumer) expire() {
	c.lose(func(s *spell) bool { return time.Since(s.renewed) >= c.ownLease() })
}

// ownLease ends before the lease that others see.
func (c *consumer) ownLease() time.Duration { return c.t.o.lease - c.t.o.lease/safety }

// tick renews the leases of all sources, and takes or gives up partitions.
func (c *consumer) tick(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.t.o.lease)
	defer cancel()
	unbroken := within(ctx, c.db)
	shares := make([]*share, len(c.sources))
	err := c.db.InTx(ctx, func(tx *stdsql.Tx) error {
		if err := c.follow(unbroken, tx); err != nil {
			return err
		}
		for i, src := range c.sources {
			shares[i] = &share{c: c, src: src, tx: tx}
			if err := shares[i].decide(unbroken); err != nil {
				return fmt.Errorf("lease of topic %q, group %q: %w", src.name, c.cfg.Group, err)
			}
		}
		return nil
	})
	for _, src := range c.sources {
		if err == nil && c.db.Dialect.Server() {
			err = c.db.Explain(c.survey(ctx, src))
		}
	}
	if err != nil {
		return refuse(err)
	}
	changed := false
	for _, sh := range shares {
		changed = sh.apply(began) || changed
	}
	if c.watchdog != nil {
		c.watchdog.Reset(max(0, time.Until(began.Add(c.ownLease()))))
	}
	if changed {
		poke(c.look)
		poke(c.act)
	}
	return nil
}

// starving tells whether some source has fewer partitions than its share.
func (c *consumer) starving() bool {
	return slices.ContainsFunc(c.sources, func(src *source) bool { return src.wanting })
}
