package main

import (
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/benchmarks/harness"
)

// routed measures Watermill's Router on a broker, with one Subscribe for each
// of subs. Its Close ends handlers and loses acks, so nothing is asked of the
// broker afterwards.
func routed(m *harness.Meter, n, times int, name string, handle func(*message.Message) error, subs ...message.Subscriber) error {
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	c := newCount(m, n, times)
	for _, sub := range subs {
		r.AddConsumerHandler(unique(), name, sub, func(msg *message.Message) error {
			err := handle(msg)
			c.add(1)
			return err
		})
	}
	ran := make(chan error, 1)
	go func() { ran <- r.Run(background()) }()
	if err := c.await(ran); err != nil {
		return err
	}
	c.settled()
	if err := r.Close(); err != nil {
		return err
	}
	return <-ran
}
