package main

import (
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/benchmarks/harness"
)

// watermillRabbit measures watermill-amqp as it comes, with so many handlers
// that each have a Subscribe of their own.
func watermillRabbit(kind string, subscribes int, handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inQueue(kind, twice*n, func(name string) error {
			c := wamqp.NewDurableQueueConfig(rabbitBroker.url())
			c.Queue.Arguments = rabbitQueue(kind)
			sub, err := wamqp.NewSubscriber(c, watermill.NopLogger{})
			if err != nil {
				return err
			}
			return routed(m, n, twice, name, handle, slices.Repeat([]message.Subscriber{sub}, subscribes)...)
		})
	}
}
