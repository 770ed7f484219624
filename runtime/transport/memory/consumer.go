package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// consumer is one member of a group.
type consumer struct {
	b       *Broker
	group   *group
	cfg     transport.ConsumerConfig
	session uint64
	awake   chan struct{}

	// Guarded by Broker.mu.
	spells []*spell
	turn   int   // which spell Receive begins with
	err    error // why the consumer is over
}

var _ transport.Consumer = (*consumer)(nil)

// ref is a delivery's way back to its message.
type ref struct {
	spell  *spell
	offset int64
	times  uint32 // tells this hand-over from a later one
}

// handed is a delivery as it is allocated, many at a time.
type handed struct {
	transport.Delivery
	ref ref
}

// slab is how many deliveries of small messages share an allocation: as many
// as fit into a size that the allocator has.
const (
	slab  = 30
	small = 4 << 10
)

func (b *Broker) join(cfg transport.ConsumerConfig) (*consumer, error) {
	b.mu.Lock()
	for _, topicName := range cfg.Topics {
		if what := b.missing(topicName, cfg.Group); what != "" {
			b.mu.Unlock()
			return nil, fmt.Errorf("join group %q: %s does not exist", cfg.Group, what)
		}
	}
	g := b.groups[cfg.Group]
	g.sessions[cfg.Name]++
	c := &consumer{b: b, group: g, cfg: cfg, awake: make(chan struct{}, 1)}
	if !b.opts.Capabilities.StableCoordinates {
		c.session = g.sessions[cfg.Name]
	}
	g.members = append(g.members, c)
	var leave []*spell
	for _, topicName := range cfg.Topics {
		leave = append(leave, g.balance(topicName, b.shared())...)
	}
	b.mu.Unlock()
	b.leave(leave)
	return c, nil
}

func (c *consumer) wake() {
	select {
	case c.awake <- struct{}{}:
	default:
	}
}

// Receive takes what is there, from one partition after another.
func (c *consumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.b.fail(ctx, OpReceive, "", c.cfg.Group); err != nil {
			return nil, err
		}
		ds, due, err := c.take(limit, maxBytes)
		if len(ds) > 0 || err != nil {
			return ds, err
		}
		if err := c.wait(ctx, due); err != nil {
			return nil, err
		}
	}
}

func (c *consumer) wait(ctx context.Context, due time.Time) error {
	var timer <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-c.awake:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// take is Receive without waiting; due is when the next delayed message comes.
func (c *consumer) take(limit int, maxBytes int64) (ds []*transport.Delivery, due time.Time, err error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.err != nil {
		return nil, due, c.err
	}
	if !c.b.opts.Capabilities.ByteWindow {
		maxBytes = 1 << 62
	}
	batch := batch{limit: limit, bytes: maxBytes}
	now := time.Now()
	for i := range c.spells {
		s := c.spells[(c.turn+i)%len(c.spells)]
		if s.paused || s.leaving || s.over {
			continue
		}
		if d := s.cursor.ripen(now); !d.IsZero() && (due.IsZero() || d.Before(due)) {
			due = d
		}
		if batch.fill(s) {
			// The same partition goes first next time if it is waiting for
			// bytes, so that smaller messages of others do not starve it.
			c.turn = (c.turn + i) % len(c.spells)
			if len(batch.ds) == limit {
				c.turn++
			}
			break
		}
	}
	if len(batch.ds) == 0 && batch.need > 0 {
		return nil, due, transport.NeedBytes(batch.need)
	}
	return batch.ds, due, nil
}

// Pause stops deliveries of one assignment.
func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

// Resume lets them come again.
func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	for _, s := range c.spells {
		if s.a == a {
			s.paused = paused
			c.wake()
		}
	}
}

// Settle takes effect at once.
func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	f := c.b.match(OpSettle, "", c.cfg.Group)
	if f.before() {
		if err := f.strike(ctx); err != nil {
			return err
		}
	}
	if err := c.b.settle(c, batch); err != nil || !f.after() {
		return err
	}
	return f.strike(ctx)
}

// Close gives back what is held and leaves the group.
func (c *consumer) Close(ctx context.Context) error {
	err := c.b.fail(ctx, OpClose, "", c.cfg.Group)
	c.end(transport.ErrClosed, true)
	return err
}

// end takes the member out of its group; err is what Receive says from now on.
func (c *consumer) end(err error, clean bool) {
	c.b.mu.Lock()
	if c.err != nil {
		c.b.mu.Unlock()
		return
	}
	c.err = err
	c.group.members = without(c.group.members, c)
	var over []*spell
	for _, s := range c.spells {
		if !s.over {
			s.over = true
			over = append(over, s)
		}
	}
	c.wake()
	c.b.mu.Unlock()
	c.b.end(over, clean)
}
