// Package memory is a broker inside the process: topics with partitions,
// groups that share them, order, redelivery, delays, and faults on demand. It
// keeps what the engine is promised by a broker, and nothing after the
// process has ended.
//
// All waiting is on channels and timers, so that it works under
// testing/synctest. It starts no goroutines.
package memory

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Transport is one worker's connection to a [Broker].
type Transport struct {
	b      *Broker
	closed atomic.Bool
}

var _ transport.Transport = (*Transport)(nil)

// New makes a broker of that name and opens it.
func New(name string, o Options) *Transport {
	b := NewBroker(o)
	b.name = name
	return b.Transport()
}

// Broker is the broker behind the transport.
func (t *Transport) Broker() *Broker { return t.b }

// Kind is "memory".
func (t *Transport) Kind() string { return "memory" }

// Capabilities are those of the options.
func (t *Transport) Capabilities() transport.Capabilities { return *t.b.opts.Capabilities }

// Declare creates topics and groups, or checks for them.
func (t *Transport) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	if t.closed.Load() {
		return transport.ErrClosed
	}
	for _, d := range ds {
		if err := t.b.fail(ctx, OpDeclare, d.Topic, d.Group); err != nil {
			return fmt.Errorf("declare topic %q: %w", d.Topic, err)
		}
		if err := t.declare(mode, d); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transport) declare(mode transport.Topology, d transport.Declaration) error {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	switch mode {
	case transport.TopologyOff:
	case transport.TopologyVerify:
		if what := t.b.missing(d.Topic, d.Group); what != "" {
			return transport.Refuse(fmt.Errorf("%s does not exist: declare it, or set topology to declare", what))
		}
	case transport.TopologyDeclare:
		if err := transport.CheckName("topic", d.Topic); err != nil {
			return transport.Refuse(err)
		}
		if d.Group != "" {
			if err := transport.CheckName("group", d.Group); err != nil {
				return transport.Refuse(err)
			}
		}
		t.b.declare(d.Topic, d.Group, d.Start)
	default:
		return transport.Refuse(fmt.Errorf("topology %q: want declare, verify or off", mode))
	}
	return nil
}

// OpenConsumer joins the group, and waits for no other member.
func (t *Transport) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	if t.closed.Load() {
		return nil, transport.ErrClosed
	}
	if err := transport.CheckName("group", cfg.Group); err != nil {
		return nil, transport.Refuse(err)
	}
	if len(cfg.Topics) == 0 {
		return nil, transport.Refuse(fmt.Errorf("join group %q: no topics", cfg.Group))
	}
	if cfg.Base == nil {
		cfg.Base = context.WithoutCancel(ctx)
	}
	if cfg.Span <= 0 {
		cfg.Span = math.MaxInt
	}
	if cfg.Topology == "" {
		cfg.Topology = transport.TopologyDeclare
	}
	for _, topic := range cfg.Topics {
		if err := t.b.fail(ctx, OpOpenConsumer, topic, cfg.Group); err != nil {
			return nil, fmt.Errorf("join group %q of topic %q: %w", cfg.Group, topic, err)
		}
		if err := t.declare(cfg.Topology, transport.Declaration{Topic: topic, Group: cfg.Group, Start: cfg.Start}); err != nil {
			return nil, err
		}
	}
	return t.b.join(cfg)
}

// OpenProducer opens a publisher.
func (t *Transport) OpenProducer(ctx context.Context) (transport.Producer, error) {
	if t.closed.Load() {
		return nil, transport.ErrClosed
	}
	if err := t.b.fail(ctx, OpOpenProducer, "", ""); err != nil {
		return nil, err
	}
	return &producer{b: t.b}, nil
}

// Depth counts what waits in a group.
func (t *Transport) Depth(ctx context.Context, topicName, groupName string) (transport.Depth, error) {
	if !t.b.opts.Capabilities.Depth {
		return transport.Depth{}, transport.ErrUnsupported
	}
	if err := t.b.fail(ctx, OpDepth, topicName, groupName); err != nil {
		return transport.Depth{}, err
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if what := t.b.missing(topicName, groupName); what != "" {
		return transport.Depth{}, fmt.Errorf("depth: %s does not exist", what)
	}
	var d transport.Depth
	now := time.Now()
	for _, c := range t.b.cursors(topicName, groupName) {
		c.ripen(now)
		d.Delayed += int64(len(c.delayed))
		d.Held += int64(c.held)
		d.Ready += c.part.end() - c.start - c.settled - int64(c.held) - int64(len(c.delayed))
		if c.floor < c.part.end() {
			if at := time.Unix(0, c.part.at(c.floor).enqueued); d.Oldest.IsZero() || at.Before(d.Oldest) {
				d.Oldest = at
			}
		}
	}
	return d, nil
}

// Close ends the connection for everything not yet open; the broker and what
// it holds stay.
func (t *Transport) Close(context.Context) error {
	t.closed.Store(true)
	return nil
}
