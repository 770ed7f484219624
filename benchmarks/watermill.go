package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/leat-io/leat/benchmarks/harness"
)

// goChannel is Watermill's Router on its GoChannel, which has no messages that
// wait: they are built beforehand and published, at most as many as we
// prefetch at a time, while it runs.
func goChannel(headers int, chain func() ([]message.HandlerMiddleware, error)) func(*harness.Meter, int) error {
	return watermillRouter(headers, chain, func() (message.Subscriber, feedFunc) {
		ch := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: prefetch}, watermill.NopLogger{})
		return ch, func(_ context.Context, msgs []*message.Message, window chan struct{}) error {
			for _, m := range msgs {
				window <- struct{}{}
				if err := ch.Publish(topic, m); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// stubChannel is Watermill's Router on a subscriber that does nothing but hand
// over messages: what any broker costs comes on top.
func stubChannel(headers int, chain func() ([]message.HandlerMiddleware, error)) func(*harness.Meter, int) error {
	return watermillRouter(headers, chain, func() (message.Subscriber, feedFunc) {
		ch := make(stub, prefetch)
		return ch, func(ctx context.Context, msgs []*message.Message, window chan struct{}) error {
			for _, m := range msgs {
				window <- struct{}{}
				m.SetContext(ctx)
				ch <- m
			}
			return nil
		}
	})
}

type stub chan *message.Message

func (s stub) Subscribe(context.Context, string) (<-chan *message.Message, error) { return s, nil }

func (s stub) Close() error { close(s); return nil }

// feedFunc hands over messages, each after it has got room in the window.
type feedFunc func(ctx context.Context, msgs []*message.Message, window chan struct{}) error

func watermillRouter(headers int, chain func() ([]message.HandlerMiddleware, error), open func() (message.Subscriber, feedFunc)) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		for done := 0; done < n; done += slice {
			links, err := chain()
			if err != nil {
				return err
			}
			sub, feed := open()
			msgs := make([]*message.Message, min(slice, n-done))
			for i := range msgs {
				msgs[i] = newMessage(i, headers)
			}
			if err := runWatermill(m, sub, feed, links, msgs); err != nil {
				return err
			}
		}
		return nil
	}
}

func runWatermill(m *harness.Meter, sub message.Subscriber, feed feedFunc, links []message.HandlerMiddleware, msgs []*message.Message) error {
	ctx := context.Background()
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	r.AddMiddleware(links...)
	var handled atomic.Int64
	window, all := make(chan struct{}, prefetch), make(chan struct{})
	r.AddConsumerHandler(topic, topic, sub, func(*message.Message) error {
		<-window
		if handled.Add(1) == int64(len(msgs)) {
			close(all)
		}
		return nil
	})
	ran := make(chan error, 1)
	m.Start()
	go func() { ran <- r.Run(ctx) }()
	<-r.Running()
	if err := feed(ctx, msgs, window); err != nil {
		return err
	}
	<-all
	m.Stop()
	if err := r.Close(); err != nil {
		return err
	}
	return <-ran
}

// bareLinks is no middleware.
func bareLinks() ([]message.HandlerMiddleware, error) { return nil, nil }

// fiveLinks is what Watermill has that corresponds to the default chain.
func fiveLinks() ([]message.HandlerMiddleware, error) {
	poison, err := wmiddleware.PoisonQueue(gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}), topic+"-dead")
	if err != nil {
		return nil, err
	}
	retry := wmiddleware.Retry{MaxRetries: 4, InitialInterval: 200 * time.Millisecond, MaxInterval: 30 * time.Second, Multiplier: 2}
	return []message.HandlerMiddleware{
		wmiddleware.CorrelationID, poison, retry.Middleware, wmiddleware.Timeout(timeout), wmiddleware.Recoverer,
	}, nil
}
