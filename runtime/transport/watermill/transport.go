// Package watermill makes a transport of any Watermill Subscriber and
// Publisher, and of those of watermill-kafka, -amqp and -sql with a few
// options.
//
// What a Pub/Sub cannot be asked for is a missing capability: it counts no
// attempts, keeps no delay and hands out one message of a subscription at a
// time. The engine parks a message that waits for its next attempt, so that
// nothing is nacked as a retry.
package watermill

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	wm "github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Transport wraps a Subscriber and a Publisher; name is its kind. Groups are
// those the Subscriber was made with: a consumer's group is a label. Both stay
// the caller's to close, after the worker has ended.
func Transport(name string, sub message.Subscriber, pub message.Publisher) transport.Transport {
	return &adapter{
		kind: name,
		caps: capabilities(false),
		subscriber: func(transport.ConsumerConfig, wm.LoggerAdapter) (message.Subscriber, error) {
			return kept{sub}, nil
		},
		publisher: func() (message.Publisher, error) { return keptPublisher{pub}, nil },
		// A Subscriber that is wrapped twice must not be initialized twice.
		initialize: func(topic string) error { return initialize(sub, topic) },
	}
}

// capabilities of a Pub/Sub of which nothing is known but whether it is a
// broker that lives on.
func capabilities(durable bool) transport.Capabilities {
	return transport.Capabilities{
		KeyOrder:      transport.ScopeWorker,
		Attempts:      transport.KeepProcess,
		Browse:        transport.BrowseNone,
		Networked:     true,
		Durable:       durable,
		MaxNameLength: transport.MaxName,
	}
}

// adapter is the transport; the functions make what one consumer or producer owns.
type adapter struct {
	kind       string
	caps       transport.Capabilities
	subscriber func(transport.ConsumerConfig, wm.LoggerAdapter) (message.Subscriber, error)
	publisher  func() (message.Publisher, error)
	initialize func(topic string) error // nil: topics are made by publishing
	sessions   atomic.Uint64
}

func (t *adapter) Kind() string { return t.kind }

func (t *adapter) Capabilities() transport.Capabilities { return t.caps }

// Declare has the Subscriber initialize topics where it can. It cannot check
// for them.
func (t *adapter) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	switch mode {
	case transport.TopologyOff:
		return nil
	case transport.TopologyVerify:
		return transport.Refuse(fmt.Errorf("topology verify: %s cannot check for topics: set it to declare or off", t.kind))
	case transport.TopologyDeclare:
	default:
		return transport.Refuse(fmt.Errorf("topology %q: want declare or off", mode))
	}
	for _, d := range ds {
		if t.initialize == nil {
			break
		}
		_, err := await(ctx, func() (struct{}, error) { return struct{}{}, t.initialize(d.Topic) }, nil)
		if err != nil {
			return fmt.Errorf("declare topic %q: %w", d.Topic, err)
		}
	}
	return nil
}

func initialize(sub message.Subscriber, topic string) error {
	if s, ok := sub.(message.SubscribeInitializer); ok {
		return s.SubscribeInitialize(topic)
	}
	return nil
}

func (t *adapter) Depth(context.Context, string, string) (transport.Depth, error) {
	return transport.Depth{}, transport.ErrUnsupported
}

// OpenConsumer subscribes to each topic once.
func (t *adapter) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	open := func() (transport.Consumer, error) { return t.subscribe(cfg) } //nolint:contextcheck // it outlives the opening
	return await(ctx, open, func(c transport.Consumer) {
		_ = c.Close(cfg.Base) // nobody waits for it any more
	})
}

func (t *adapter) OpenProducer(ctx context.Context) (transport.Producer, error) {
	pub, err := await(ctx, t.publisher, func(p message.Publisher) { _ = p.Close() })
	if err != nil {
		return nil, fmt.Errorf("open publisher: %w", err)
	}
	return &producer{pub}, nil
}

func (t *adapter) Close(context.Context) error { return nil }

func adapt(l *slog.Logger) wm.LoggerAdapter {
	if l == nil {
		return wm.NopLogger{}
	}
	return wm.NewSlogLogger(l)
}

// await bounds by ctx a call that knows no context. A result that comes too
// late goes to drop.
func await[T any](ctx context.Context, call func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := call()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil && drop != nil {
				drop(r.v)
			}
		}()
		var none T
		return none, ctx.Err()
	}
}

// kept is a Subscriber that its maker closes.
type kept struct{ message.Subscriber }

func (kept) Close() error { return nil }

type keptPublisher struct{ message.Publisher }

func (keptPublisher) Close() error { return nil }
