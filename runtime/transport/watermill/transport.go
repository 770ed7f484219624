// Package watermill makes a transport of any Watermill Subscriber and
// Publisher, and of those of watermill-kafka, -amqp and -sql, guarded against
// what these lose, loop on or hold up.
//
// What a Pub/Sub cannot be asked for is a missing capability: it counts no
// attempts, keeps no delay and hands out one message of a subscription, or of
// an SQL topic, at a time. The engine parks a message that waits for its next
// attempt, so that nothing is nacked as a retry.
package watermill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	wm "github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Option changes what [Transport] takes for granted of a Pub/Sub.
type Option func(*adapter)

// Subscriptions has each consumer subscribe n times to each topic, for as many
// messages at once. It is right only where all subscriptions of a Subscriber
// share the messages of a topic, as with a queue or a group; where each gets
// every message, as with a GoChannel, every message would run n times. A
// consumer that keeps an order still subscribes once.
func Subscriptions(n int) Option { return func(t *adapter) { t.subscriptions = n } }

// Durable says that messages outlive the process.
func Durable() Option { return func(t *adapter) { t.caps.Durable = true } }

// Transport wraps a Subscriber and a Publisher; name is its kind. Groups are
// those the Subscriber was made with: a consumer's group is a label. Both stay
// the caller's to close, after the worker has ended.
//
// A Publisher that returns nil for what it did not publish loses outputs and
// dead letters, and nothing here can tell.
func Transport(name string, sub message.Subscriber, pub message.Publisher, opts ...Option) transport.Transport {
	t := &adapter{
		kind: name,
		caps: capabilities(),
		source: func(transport.ConsumerConfig, wm.LoggerAdapter) (*source, error) {
			return &source{sub: sub, foreign: true}, nil
		},
		publisher: func() (transport.Producer, error) { return &producer{pub: pub, foreign: true}, nil },
		// A Subscriber that is wrapped twice must not be initialized twice.
		declare: func(_ context.Context, mode transport.Topology, d transport.Declaration) error {
			s, ok := sub.(message.SubscribeInitializer)
			switch {
			case mode == transport.TopologyVerify:
				return transport.Refuse(fmt.Errorf("topology verify: %s cannot check for topics: set it to declare or off", name))
			case !ok:
				return nil
			}
			return s.SubscribeInitialize(d.Topic)
		},
	}
	for _, o := range opts {
		o(t)
	}
	return t
}

// capabilities of a Pub/Sub of which nothing is known.
func capabilities() transport.Capabilities {
	return transport.Capabilities{
		KeyOrder:      transport.ScopeWorker,
		Attempts:      transport.KeepProcess,
		Browse:        transport.BrowseNone,
		Networked:     true,
		MaxNameLength: transport.MaxName,
	}
}

// adapter is the transport; the functions are what kinds differ in.
type adapter struct {
	kind string
	caps transport.Capabilities
	// subscriptions of one topic and consumer, where no order is kept.
	subscriptions int

	source    func(transport.ConsumerConfig, wm.LoggerAdapter) (*source, error)
	publisher func() (transport.Producer, error)
	declare   func(context.Context, transport.Topology, transport.Declaration) error
	close     func() error // nil: nothing is to be closed

	sessions atomic.Uint64
	closed   atomic.Bool
}

func (t *adapter) Kind() string { return t.kind }

func (t *adapter) Capabilities() transport.Capabilities { return t.caps }

// Declare checks names, and has the kind make or check what is named.
func (t *adapter) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	if t.closed.Load() {
		return transport.ErrClosed
	}
	switch mode {
	case transport.TopologyOff:
		return nil
	case transport.TopologyDeclare, transport.TopologyVerify:
	default:
		return transport.Refuse(fmt.Errorf("topology %q: want declare, verify or off", mode))
	}
	for _, d := range ds {
		if err := checkNames(d); err != nil {
			return err
		}
		err := awaitErr(ctx, func() error { return t.declare(ctx, mode, d) })
		if err != nil {
			return fmt.Errorf("declare topic %q: %w", d.Topic, err)
		}
	}
	return nil
}

func checkNames(d transport.Declaration) error {
	if err := transport.CheckName("topic", d.Topic); err != nil {
		return transport.Refuse(err)
	}
	if d.Group != "" {
		if err := transport.CheckName("group", d.Group); err != nil {
			return transport.Refuse(err)
		}
	}
	return nil
}

func (t *adapter) Depth(context.Context, string, string) (transport.Depth, error) {
	return transport.Depth{}, transport.ErrUnsupported
}

// OpenConsumer declares and subscribes to each topic.
func (t *adapter) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	if t.closed.Load() {
		return nil, transport.ErrClosed
	}
	if len(cfg.Topics) == 0 {
		return nil, transport.Refuse(fmt.Errorf("join group %q: no topics", cfg.Group))
	}
	if err := transport.CheckName("group", cfg.Group); err != nil {
		return nil, transport.Refuse(fmt.Errorf("open consumer: %w", err))
	}
	if cfg.Topology == "" {
		cfg.Topology = transport.TopologyDeclare
	}
	if cfg.Base == nil {
		cfg.Base = context.WithoutCancel(ctx)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	for _, topic := range cfg.Topics {
		d := transport.Declaration{Topic: topic, Group: cfg.Group, Start: cfg.Start}
		if err := checkNames(d); err != nil {
			return nil, err
		}
		if err := t.Declare(ctx, cfg.Topology, d); err != nil {
			return nil, err
		}
	}
	open := func() (*consumer, error) { return t.subscribe(cfg) } //nolint:contextcheck // it outlives the opening
	c, err := await(ctx, open, func(c *consumer) {
		_ = c.Close(cfg.Base) // nobody waits for it any more
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t *adapter) OpenProducer(ctx context.Context) (transport.Producer, error) {
	if t.closed.Load() {
		return nil, transport.ErrClosed
	}
	drop := func(p transport.Producer) { _ = p.Close(context.WithoutCancel(ctx)) }
	p, err := await(ctx, t.publisher, drop)
	if err != nil {
		return nil, fmt.Errorf("open publisher: %w", err)
	}
	return p, nil
}

// Close closes what the kind itself has opened.
func (t *adapter) Close(ctx context.Context) error {
	if t.closed.Swap(true) || t.close == nil {
		return nil
	}
	return awaitErr(ctx, t.close)
}

// quietly logs for a Pub/Sub, which tells errors of every kind as if they were
// the worker's. The engine tells what follows from them.
func quietly(l *slog.Logger) wm.LoggerAdapter {
	return wm.NewSlogLoggerWithLevelMapping(l, map[slog.Level]slog.Level{slog.LevelError: slog.LevelWarn, slog.LevelInfo: slog.LevelDebug})
}

var errEnded = errors.New("subscription has ended")
