package amqp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// Declare makes exchanges, queues and bindings, or looks whether exchanges and
// queues are there.
func (t *Transport) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	t.mu.Lock()
	t.mode = mode
	t.mu.Unlock()
	for _, d := range ds {
		if err := checkNames(d.Topic, d.Group); err != nil {
			return err
		}
		if mode == transport.TopologyOff {
			continue
		}
		if err := t.declareOne(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transport) declareOne(ctx context.Context, d transport.Declaration) error {
	r := t.route(d.Topic)
	if r.exchange != "" {
		if err := t.ensureExchange(ctx, r); err != nil {
			return err
		}
	}
	switch {
	case d.DeadLetter && r.queue == "":
		return t.ensureQueue(ctx, r, d.Topic)
	case d.Group == "":
		return nil
	case r.queue != "":
		return t.ensureForeign(ctx, r.queue)
	}
	queue, own, err := t.queueOf(ctx, r, d.Group)
	if err != nil {
		return err
	}
	if own {
		t.o.Log.InfoContext(ctx, "topic has a queue of its own name: it is read from that, by all groups together", "topic", r.topic, "group", d.Group)
		return nil
	}
	return t.ensureQueue(ctx, r, queue)
}

// queueOf names the queue that a group of a topic reads. A topic with a queue
// of its own name, as a dead letter has, is read from that, by all groups
// together, but for a group that has its queue already; own tells so. It is
// looked up each time, since a dead letter may be declared after its readers.
func (t *Transport) queueOf(ctx context.Context, r route, group string) (queue string, own bool, err error) {
	if r.queue != "" {
		return r.queue, true, nil
	}
	queue = queueName(r.topic, group)
	for _, name := range []string{queue, r.topic} {
		switch _, err := t.stat(ctx, name); {
		case err == nil:
			return name, name == r.topic, nil
		case !absent(err):
			return "", false, about("queue", name, err)
		}
	}
	return queue, false, nil
}

// stat looks at a queue. The error is the broker's own.
func (t *Transport) stat(ctx context.Context, queue string) (amqp091.Queue, error) {
	found := make(chan amqp091.Queue, 1) // ctx may end before the answer comes
	if err := t.control.do(ctx, func(_ *conn, ch *amqp091.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		found <- q
		return err
	}); err != nil {
		return amqp091.Queue{}, err
	}
	return <-found, nil
}

// ensureExchange declares an exchange if it is ours, or looks whether it is there.
func (t *Transport) ensureExchange(ctx context.Context, r route) error {
	look := func(_ *conn, ch *amqp091.Channel) error {
		return ch.ExchangeDeclarePassive(r.exchange, "", true, false, false, false, nil)
	}
	if r.kind != "" && t.declares() {
		err := t.control.do(ctx, func(_ *conn, ch *amqp091.Channel) error {
			return ch.ExchangeDeclare(r.exchange, r.kind, true, false, false, false, nil)
		})
		if code(err) != amqp091.AccessRefused {
			return about("exchange", r.exchange, err)
		}
		if t.control.do(ctx, look) != nil { // it is not there either
			return about("exchange", r.exchange, err)
		}
		return nil
	}
	return missing("exchange", r.exchange, t.control.do(ctx, look))
}

// ensureQueue declares a queue of ours and binds it, or looks whether it is there.
func (t *Transport) ensureQueue(ctx context.Context, r route, queue string) error {
	if !t.declares() {
		_, err := t.stat(ctx, queue)
		return missing("queue", queue, err)
	}
	if err := t.stopped(queue); err != nil {
		return err
	}
	err := t.declareQueue(ctx, queue)
	switch {
	case code(err) == amqp091.AccessRefused:
		if _, serr := t.stat(ctx, queue); serr != nil {
			return about("queue", queue, err)
		}
	case err != nil:
		return about("queue", queue, err)
	}
	for _, key := range r.bindings {
		if err := t.bind(ctx, r.exchange, key, queue); err != nil {
			return err
		}
	}
	return nil
}

// longestBind bounds the wait for a binding that this process has made before.
const longestBind = time.Second

// bind binds a queue of ours. A cluster makes no binding, not even one that is
// there, before all of its nodes have agreed: while one of them hangs that takes
// a minute, in which nobody shall wait for what was bound before.
func (t *Transport) bind(ctx context.Context, exchange, key, queue string) error {
	b := binding{exchange, key, queue}
	t.mu.Lock()
	before := t.bound[b]
	t.mu.Unlock()
	short, cancel := ctx, func() {}
	if before {
		short, cancel = context.WithTimeoutCause(ctx, longestBind, fmt.Errorf("no answer within %s", longestBind))
	}
	defer cancel()
	err := t.control.do(short, func(_ *conn, ch *amqp091.Channel) error {
		return ch.QueueBind(queue, key, exchange, false, nil)
	})
	switch {
	case err == nil:
		t.mu.Lock()
		t.bound[b] = true
		t.mu.Unlock()
		return nil
	case code(err) == amqp091.AccessRefused:
		t.o.Log.WarnContext(ctx, "no right to bind the queue: it is taken to be bound", "queue", queue, "exchange", exchange, "reason", trimReason(reasonOf(err)))
		return nil
	case short.Err() != nil && ctx.Err() == nil:
		t.o.Log.WarnContext(ctx, "the broker does not say whether the queue is bound: it was, and is taken to be", "queue", queue, "exchange", exchange, "reason", err)
		return nil
	default:
		return about("binding of queue", queue, err)
	}
}

// binding is one that this process has made.
type binding struct{ exchange, key, queue string }

// declareQueue declares a queue without a delivery limit. The error is the
// broker's own.
func (t *Transport) declareQueue(ctx context.Context, queue string) error {
	declare := func(limited bool) error {
		return t.control.do(ctx, func(c *conn, ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(queue, true, false, false, false, t.arguments(c.version, limited))
			return err
		})
	}
	err := declare(false)
	if d, ok := parseDifference(reasonOf(err)); !ok || d.argument != deliveryLimit {
		return err
	}
	if err := declare(true); err != nil {
		return err
	}
	t.warnLimit(ctx, queue, "the broker's default, 20 deliveries since RabbitMQ 4.0")
	return nil
}

const deliveryLimit = "x-delivery-limit"

// arguments of the queues that are made. They are part of the format: other
// ones would not match the queues that are there. Since 4.0 a quorum queue
// drops a message at its 21st delivery, unless it is told not to; before, -1
// would drop it at its first return.
func (t *Transport) arguments(v version, limited bool) amqp091.Table {
	args := amqp091.Table{"x-queue-type": t.o.QueueType}
	if t.o.QueueType == quorum && v.atLeast(4, 0) && !limited {
		args[deliveryLimit] = int32(-1)
	}
	if t.o.SingleActive {
		args["x-single-active-consumer"] = true
	}
	return args
}

// stopped refuses a queue that was deleted under its consumer, where that is to stop it.
func (t *Transport) stopped(queue string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.o.QueueDeleted == stop && t.deleted[queue] > 0 {
		return transport.Refuse(fmt.Errorf("queue %q was deleted under its consumer: with queue_deleted: stop it is declared again only by a new start of the worker", queue))
	}
	return nil
}

// about says what an error is about.
func about(what, name string, err error) error {
	if err == nil {
		return nil
	}
	err = explain(err)
	if strings.Contains(err.Error(), "'"+name+"'") || strings.Contains(err.Error(), `"`+name+`"`) {
		return err
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}

// missing is about for what is not ours to make.
func missing(what, name string, err error) error {
	if absent(err) {
		return transport.Refuse(fmt.Errorf("%s %q does not exist, and is not to be made here: make it, or write topology: declare and name only what exists under topics", what, name))
	}
	return about(what, name, err)
}
