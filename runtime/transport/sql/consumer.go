package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

// consumer is one member of a group, for one or more topics.
type consumer struct {
	t       *Transport
	db      *database
	cfg     transport.ConsumerConfig
	session string
	sources []*source
	clock   clock

	mu       sync.Mutex
	spells   []*spell
	scanning bool
	failure  error // ends Receive
	left     bool  // and the membership is kept
	orphans  map[*spell][]int64
	turn     int // the partition the next scan begins with

	look     chan struct{}   // to Receive: there may be something to read
	act      chan struct{}   // to the keeper: do not wait for the next tick
	wake     <-chan struct{} // somebody here published
	unwake   func()
	watchdog *time.Timer
	stop     context.CancelFunc
	kept     chan struct{}

	// What Receive alone uses.
	rescanned, fullRescan time.Time
	lookTook              time.Duration // the last look back
	watch                 watcher
}

var _ transport.Consumer = (*consumer)(nil)

const (
	pollMin  = 5 * time.Millisecond
	memberOf = "members of " // prefix of a signal
)

// OpenConsumer joins the group and takes its share of the partitions, as far
// as they are free. After a consumer of this name and group has lost the
// database, that is still its member.
func (t *Transport) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (_ transport.Consumer, err error) {
	if len(cfg.Topics) == 0 || cfg.Group == "" {
		return nil, transport.Refuse(fmt.Errorf("consumer %q needs a topic and a group", cfg.Name))
	}
	if cfg.Topology == transport.TopologyDeclare || cfg.Topology == "" {
		ds := make([]transport.Declaration, len(cfg.Topics))
		for i, name := range cfg.Topics {
			ds[i] = transport.Declaration{Topic: name, Group: cfg.Group, Start: cfg.Start}
		}
		if err := t.Declare(ctx, cfg.Topology, ds...); err != nil {
			return nil, err
		}
	}
	db, err := t.connect(ctx, cfg.Topology)
	if err != nil {
		return nil, err
	}
	c := &consumer{
		t: t, db: db, cfg: cfg, session: uuid.NewString(), orphans: map[*spell][]int64{},
		rescanned: time.Now(), fullRescan: time.Now(),
		watch: t.d.watcher(), look: make(chan struct{}, 1), act: make(chan struct{}, 1), kept: make(chan struct{}),
	}
	if before := t.lost.take(cfg); before != nil {
		c.session = before.session
		defer func() {
			if err != nil {
				t.lost.leave(before)
			}
		}()
	}
	for _, name := range cfg.Topics {
		tp, err := findTopic(ctx, db, nil, name)
		if err != nil {
			return nil, c.missing(err)
		}
		group, err := groupID(ctx, db, nil, tp, cfg.Group)
		if err != nil {
			return nil, c.missing(err)
		}
		ungated, err := filled(ctx, db, group, cfg.Group)
		if err != nil {
			return nil, err
		}
		c.sources = append(c.sources, &source{topic: tp, group: group, unfilled: ungated, sightOf: map[string]*sighting{}})
	}
	if err := c.tick(ctx); err != nil {
		return nil, err
	}
	c.start(ctx)
	return c, nil
}

func (c *consumer) missing(err error) error {
	if errors.Is(err, errMissing) {
		return transport.Refuse(fmt.Errorf("consumer %q: %w: create it with topology: declare", c.cfg.Name, err))
	}
	return refuse(c.db.Explain(err))
}

func (c *consumer) start(ctx context.Context) {
	c.wake, c.unwake = c.db.Subscribe(c.cfg.Topics...)
	c.watchdog = time.AfterFunc(c.t.o.lease, c.expire)
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go c.keep(ctx)
}

// Receive reads what is published, by this process or another.
func (c *consumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	ds, err := c.receive(ctx, limit, maxBytes)
	var need transport.NeedBytes
	if err != nil && ctx.Err() == nil && !errors.As(err, &need) {
		c.fail(err)
	}
	return ds, err
}

func (c *consumer) receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	for interval := time.Duration(0); ; {
		if err := c.failed(ctx); err != nil {
			return nil, err
		}
		// What others publish after this, and the scan misses, makes another
		// version. While there is plenty to read nobody needs to know.
		var version int64
		if interval > 0 {
			var err error
			if version, err = c.version(ctx); err != nil {
				return nil, err
			}
		}
		c.rescan(time.Now())
		ds, err := c.scan(ctx, limit, maxBytes)
		if len(ds) > 0 || (err != nil && !sqldb.Busy(err)) {
			return ds, err
		}
		if interval == 0 {
			interval = pollMin
			continue
		}
		if interval, err = c.await(ctx, version, interval); err != nil {
			return nil, err
		}
	}
}

// await returns when there may be something to read: at once where this
// process knows, else by polling that grows slower. It gives the pause of the
// next poll.
func (c *consumer) await(ctx context.Context, version int64, interval time.Duration) (time.Duration, error) {
	poll := time.NewTimer(interval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-c.wake:
			return pollMin, nil
		case <-c.look:
			return pollMin, nil
		case <-poll.C:
		}
		interval = min(2*interval, c.t.o.poll)
		if c.db.Dialect.Server() { // to read is how to find out
			return interval, nil
		}
		now, err := c.version(ctx)
		if err != nil || now != version || c.rescan(time.Now()) {
			return pollMin, err
		}
		poll.Reset(interval)
	}
}

// version differs from an earlier one if anybody has committed in between. A
// locked database has none.
func (c *consumer) version(ctx context.Context) (int64, error) {
	if c.db.Dialect.Server() {
		return 0, nil
	}
	v, err := c.db.Version(ctx)
	if sqldb.Busy(err) {
		return 0, nil
	}
	return v, refuse(c.db.Explain(err))
}

func (c *consumer) failed(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// fail ends Receive with err, unless it has ended with another before.
func (c *consumer) fail(err error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.mu.Unlock()
	poke(c.look)
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Pause has Receive return nothing more of a.
func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

// Resume ends that.
func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	c.mu.Lock()
	for _, s := range c.spells {
		if s.a == a {
			s.paused = paused
			if !paused {
				s.lookBack(s.floor) // what commits late was not looked for
			}
		}
	}
	c.mu.Unlock()
	if !paused {
		poke(c.look)
	}
}

// lose takes spells off the list and revokes them, once.
func (c *consumer) lose(lost func(*spell) bool) {
	c.mu.Lock()
	var gone []*spell
	c.spells = slices.DeleteFunc(c.spells, func(s *spell) bool {
		if lost(s) {
			gone = append(gone, s)
			return true
		}
		return false
	})
	c.mu.Unlock()
	for _, s := range gone {
		s.a.Revoke()
	}
}

// Close gives all partitions back at once, unless Receive has failed: then they
// are kept for the same consumer to be opened again, or until the transport is
// closed or the leases run out.
func (c *consumer) Close(ctx context.Context) error {
	c.stop()
	<-c.kept
	c.watchdog.Stop()
	c.unwake()
	if c.leaves() {
		return nil
	}
	return c.resign(ctx)
}

// leaves ends the consumer, and tells whether its membership is kept.
func (c *consumer) leaves() bool {
	c.lose(func(*spell) bool { return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = fmt.Errorf("consumer %q: %w", c.cfg.Name, transport.ErrClosed)
		poke(c.look)
	}
	if errors.Is(c.failure, transport.ErrClosed) || errors.Is(c.failure, transport.ErrFenced) {
		return false
	}
	if !c.left {
		c.left = true
		c.t.lost.leave(c)
	}
	return true
}
