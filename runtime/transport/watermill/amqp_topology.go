package watermill

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// declare makes the exchange of a topic, and the queue of a group, or of a
// dead letter. What is there stays as it is, whatever its arguments.
func (k *amqpKind) declare(_ context.Context, mode transport.Topology, d transport.Declaration) error {
	line := &line{}
	config, err := k.config(line.dial)
	if err != nil {
		return err
	}
	conn, err := amqp.DialConfig(k.url, *config)
	if err != nil {
		return refuseAMQP(err)
	}
	defer func() { _ = conn.Close() }()
	b := &builder{conn: conn, verify: mode == transport.TopologyVerify}
	queue := ""
	switch {
	case d.DeadLetter:
		queue = d.Topic
	case d.Group != "":
		if queue, err = k.queueOf(conn, d.Topic, d.Group); err != nil {
			return refuseAMQP(err)
		}
	case k.Exchange == "none":
		queue = d.Topic
	}
	exchange := k.exchange(d.Topic)
	if exchange != "" {
		if err := b.exchange(exchange); err != nil {
			return refuseAMQP(err)
		}
	}
	if queue == "" {
		return nil
	}
	if err := b.queue(queue, k.arguments(conn)); err != nil || exchange == "" || b.verify {
		return refuseAMQP(err)
	}
	return refuseAMQP(b.do(func(ch *amqp.Channel) error { return ch.QueueBind(queue, "", exchange, false, nil) }))
}

// queueOf names the queue that a group reads. A topic with a queue of its own
// name, as a dead letter has, is read from that, by all groups together.
func (k *amqpKind) queueOf(conn *amqp.Connection, topic, group string) (string, error) {
	queue, err := k.queue(topic, group)
	if err != nil || queue == topic {
		return queue, err
	}
	err = (&builder{conn: conn}).do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(topic, true, false, false, false, nil)
		return err
	})
	switch {
	case err == nil:
		return topic, nil
	case isCode(err, amqp.NotFound):
		return queue, nil
	default:
		return "", err
	}
}

// arguments are those of a queue that is made. A quorum queue drops a message
// after 20 deliveries from RabbitMQ 4.0 on, unless told not to; before, being
// told so has it dropped at the first return.
func (k *amqpKind) arguments(conn *amqp.Connection) amqp.Table {
	args := amqp.Table{amqp.QueueTypeArg: k.QueueType}
	version, _ := conn.Properties["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); k.QueueType == amqp.QueueTypeQuorum && err == nil && n >= 4 {
		args["x-delivery-limit"] = -1
	}
	return args
}

// builder makes what is missing. A check that fails costs its channel.
type builder struct {
	conn   *amqp.Connection
	verify bool
}

func (b *builder) do(fn func(*amqp.Channel) error) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }()
	return fn(ch)
}

func (b *builder) exchange(name string) error {
	err := b.do(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeFanout, true, false, false, false, nil)
	})
	if missing, err := b.missing("exchange", name, err); !missing {
		return err
	}
	return b.do(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, false, false, false, nil)
	})
}

func (b *builder) queue(name string, args amqp.Table) error {
	err := b.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	if missing, err := b.missing("queue", name, err); !missing {
		return err
	}
	return b.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

// missing reads the answer to a check: true if the thing is to be made.
func (b *builder) missing(what, name string, err error) (bool, error) {
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case !ok || e.Code != amqp.NotFound:
		return false, err
	case b.verify:
		return false, transport.Refuse(fmt.Errorf("%s %q does not exist: declare it, or set topology to declare", what, name))
	default:
		return true, nil
	}
}
