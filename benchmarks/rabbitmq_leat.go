package main

import (
	"errors"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/benchmarks/harness"
)

// inTopic runs fn with a topic and a group of that name, which has n messages.
func inTopic(kind string, n int, fn func(t transport.Transport, name string) error) error {
	name := unique()
	t, err := amqp.Open(amqp.Options{URL: config.NewSecret(rabbitBroker.url()), QueueType: kind})
	if err != nil {
		return err
	}
	if err := t.Declare(background(), transport.TopologyDeclare, transport.Declaration{Topic: name, Group: name}); err != nil {
		return err
	}
	err = inRabbit(func(ch *amqp091.Channel) error { return publishRabbit(ch, name, "", kibibytes(0, n)) })
	if err == nil {
		err = fn(t, name)
	}
	return errors.Join(err, inRabbit(func(ch *amqp091.Channel) error {
		queue := name + "--" + name
		dead := queue + "--dead"
		_, one := ch.QueueDelete(queue, false, false, false)
		_, other := ch.QueueDelete(dead, false, false, false)
		return errors.Join(one, other, ch.ExchangeDelete(name, false, false), ch.ExchangeDelete(dead, false, false))
	}))
}

func leatRabbit(kind string, l load) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inTopic(kind, twice*n, func(t transport.Transport, name string) error {
			l.group = name
			return l.drain(m, t, name, n, twice)
		})
	}
}

func leatRabbitPublish(kind string, goroutines, batch int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inTopic(kind, 1, func(t transport.Transport, name string) error { return publish(m, t, name, n, goroutines, batch) })
	}
}
