package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/rabbitmq/amqp091-go"
)

// rabbitQueue has the arguments that Leat declares a queue of that type with.
func rabbitQueue(kind string) amqp091.Table {
	args := amqp091.Table{amqp091.QueueTypeArg: kind}
	if kind == amqp091.QueueTypeQuorum {
		args["x-delivery-limit"] = -1
	}
	return args
}

// inRabbit runs fn with a channel of its own.
func inRabbit(fn func(*amqp091.Channel) error) error {
	conn, err := amqp091.Dial(rabbitBroker.url())
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = fn(ch)
	}
	return errors.Join(err, conn.Close())
}

// inQueue runs fn with a queue of n messages.
func inQueue(kind string, n int, fn func(name string) error) error {
	name := unique()
	err := inRabbit(func(ch *amqp091.Channel) error {
		if _, err := ch.QueueDeclare(name, true, false, false, false, rabbitQueue(kind)); err != nil {
			return err
		}
		return publishRabbit(ch, "", name, kibibytes(0, n))
	})
	if err == nil {
		err = fn(name)
	}
	return errors.Join(err, inRabbit(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	}))
}

// unconfirmed is how many publishes wait for the broker at a time.
const unconfirmed = 1000

// publishRabbit publishes in Watermill's format and waits until all are
// confirmed.
func publishRabbit(ch *amqp091.Channel, exchange, key string, msgs []*message.Message) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	ctx := context.Background()
	window := make([]*amqp091.DeferredConfirmation, 0, len(msgs))
	confirmed := func(d *amqp091.DeferredConfirmation) error {
		ok, err := d.WaitContext(ctx)
		if err == nil && !ok {
			err = errors.New("refused by the broker")
		}
		return err
	}
	for i, m := range msgs {
		if i >= unconfirmed {
			if err := confirmed(window[i-unconfirmed]); err != nil {
				return err
			}
		}
		d, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp091.Publishing{
			DeliveryMode: amqp091.Persistent, MessageId: m.UUID, Body: m.Payload,
			Headers: amqp091.Table{watermillID: m.UUID, transport.KeyHeader: m.Metadata[transport.KeyHeader]},
		})
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		window = append(window, d)
	}
	for _, d := range window[max(0, len(window)-unconfirmed):] {
		if err := confirmed(d); err != nil {
			return err
		}
	}
	return nil
}
