package dir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// consumer is a member of a group. Its keeper follows who else is one.
type consumer struct {
	t     *Transport
	cfg   transport.ConsumerConfig
	seats []*seat // one for each topic; the keeper's alone
	wake  chan struct{}
	stop  chan struct{}
	kept  chan struct{} // closed by the keeper when it has ended
	once  sync.Once

	mu     sync.Mutex
	spells []*spell
	turn   int   // which is asked first
	err    error // of the keeper
}

// OpenConsumer joins the group.
func (t *Transport) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	if len(cfg.Topics) == 0 || cfg.Group == "" {
		return nil, transport.Refuse(errors.New("a consumer needs a topic and a group"))
	}
	c := &consumer{t: t, cfg: cfg, wake: make(chan struct{}, 1), stop: make(chan struct{}), kept: make(chan struct{})}
	for _, name := range cfg.Topics {
		if err := t.Declare(ctx, cfg.Topology, transport.Declaration{Topic: name, Group: cfg.Group, Start: cfg.Start}); err != nil {
			return nil, err
		}
		tp, err := t.topic(name)
		if err != nil {
			return nil, refuse(err)
		}
		folder, err := tp.group(cfg.Group)
		if err != nil {
			return nil, refuse(err)
		}
		c.seats = append(c.seats, &seat{topic: tp, folder: folder})
	}
	if err := c.balance(); err != nil {
		close(c.kept)
		return nil, errors.Join(refuse(err), c.Close(ctx))
	}
	go c.keep()
	return c, nil
}

// Receive looks into the directory until there is something.
func (c *consumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	poll := time.NewTicker(c.t.o.Poll)
	defer poll.Stop()
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ds, err := c.collect(limit, maxBytes); len(ds) > 0 || err != nil {
			return ds, err
		}
		select {
		case <-poll.C:
		case <-c.wake:
		case <-c.stop:
			return nil, transport.ErrClosed
		case <-ctx.Done():
		}
	}
}

func (c *consumer) collect(limit int, maxBytes int64) (ds []*transport.Delivery, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	for i := range c.spells {
		sp := c.spells[(c.turn+i)%len(c.spells)]
		if sp.paused || !sp.leaving.IsZero() || len(ds) == limit {
			continue
		}
		if ds, err = sp.collect(ds, limit, &maxBytes); err != nil {
			break
		}
	}
	if len(ds) > 0 {
		return ds, nil // the error will be there the next time
	}
	return nil, errors.Join(err, c.err)
}

// collect adds what is neither done, held nor early, in order.
func (sp *spell) collect(ds []*transport.Delivery, limit int, maxBytes *int64) ([]*transport.Delivery, error) {
	end, err := sp.seat.topic.end(sp.partition)
	if err != nil {
		return ds, err
	}
	now := time.Now()
	for o := sp.Done.next(0); o < end && len(ds) < limit; o = sp.Done.next(o + 1) {
		if sp.held[o] != nil || sp.early(o, now) {
			continue
		}
		d, err := sp.hand(o)
		switch {
		case err != nil:
			return ds, err
		case d == nil:
			continue
		case d.Size() > *maxBytes:
			return ds, transport.NeedBytes(d.Size())
		}
		*maxBytes -= d.Size()
		sp.held[o] = d
		ds = append(ds, d)
	}
	return ds, nil
}

// Pause has Receive leave a spell out.
func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

// Resume ends that.
func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.spells {
		if sp.a == a {
			sp.paused = paused
		}
	}
	c.poke()
}

// Settle writes one file for each partition that changes. What could not be
// written is tried again with the next call, which for the engine is the same
// batch.
func (c *consumer) Settle(_ context.Context, batch []transport.Settlement) error {
	for _, s := range batch {
		if s.Verdict < transport.Ack || s.Verdict > transport.Record {
			return fmt.Errorf("settle %s: there is no verdict %d", s.Delivery.Coordinates(), s.Verdict)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, s := range batch {
		sp, ok := s.Delivery.Tag.(*spell)
		if !ok || sp.over || sp.held[s.Delivery.Offset] != s.Delivery {
			continue // settled before, or no longer ours
		}
		switch s.Verdict {
		case transport.Ack:
			sp.ack(s.Delivery.Offset)
		case transport.Delay, transport.Record:
			sp.fail(s, now)
		case transport.Release:
		}
		if s.Verdict != transport.Release {
			sp.changed = true
		}
		if s.Verdict != transport.Record {
			delete(sp.held, s.Delivery.Offset)
		}
	}
	c.poke()
	return c.save()
}

// save writes the states that have changed. mu is held.
func (c *consumer) save() error {
	var errs []error
	for _, sp := range c.spells {
		errs = append(errs, sp.save())
	}
	return errors.Join(errs...)
}

// poke has a Receive that waits look again.
func (c *consumer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Close gives everything back by forgetting that it is held.
func (c *consumer) Close(context.Context) error {
	c.once.Do(func() { close(c.stop) })
	<-c.kept
	c.mu.Lock()
	spells := c.spells
	c.spells = nil
	for _, sp := range spells {
		sp.over = true
	}
	c.mu.Unlock()
	var errs []error
	for _, sp := range spells {
		errs = append(errs, sp.end())
	}
	for _, s := range c.seats {
		if s.lock != nil {
			errs = append(errs, s.lock.Close())
			s.lock = nil
		}
	}
	return errors.Join(errs...)
}
