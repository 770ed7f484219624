package amqp

import (
	"context"
	"regexp"
	"strconv"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// ensureForeign looks at a queue of somebody else's, which is used as it is,
// and warns of what it does to messages.
func (t *Transport) ensureForeign(ctx context.Context, queue string) error {
	if _, err := t.stat(ctx, queue); err != nil {
		return missing("queue", queue, err)
	}
	if t.declares() {
		t.warnOf(ctx, queue)
	}
	return nil
}

// Messages of a queue like these end otherwise than by an ack.
var losing = map[string]string{
	"durable":            "the queue does not survive a restart of the broker",
	"auto_delete":        "the queue is deleted when its last consumer leaves",
	"x-message-ttl":      "messages that wait for longer are dropped",
	"x-expires":          "the queue is deleted when it was not used for so long",
	"x-max-length":       "messages beyond that many are dropped or refused",
	"x-max-length-bytes": "messages beyond that many bytes are dropped or refused",
}

func (t *Transport) warnOf(ctx context.Context, queue string) {
	args, ok := t.inspect(ctx, queue)
	if !ok {
		return
	}
	for name, text := range losing {
		if v, there := args[name]; there {
			t.o.Log.WarnContext(ctx, "queue may lose messages", "queue", queue, "argument", name, "value", v, "meaning", text)
		}
	}
	limit, there := args[deliveryLimit]
	_, kept := args["x-dead-letter-exchange"]
	switch {
	case args["x-queue-type"] != quorum || kept:
	case there && limit != int64(-1):
		t.warnLimit(ctx, queue, limit)
	case !there:
		if c, err := t.control.get(ctx); err == nil && c.version.atLeast(4, 0) {
			t.warnLimit(ctx, queue, "the broker's default, 20 deliveries since RabbitMQ 4.0")
		}
	}
}

func (t *Transport) warnLimit(ctx context.Context, queue string, limit any) {
	t.o.Log.WarnContext(ctx, "queue has a delivery limit and no dead-letter exchange: a message that comes back too often, by mere crashes too, is dropped by the broker; set a policy with delivery-limit -1, or a dead-letter exchange",
		"queue", queue, "limit", limit)
}

var thereNow = regexp.MustCompile(`^(?:the value )?'(.*?)'(?: of type '([a-z]+)')?$`)

// inspect finds the arguments of a queue that is there. The protocol can't ask
// for them; but who declares it otherwise is told of the first difference, and who
// declares it alike changes nothing.
func (t *Transport) inspect(ctx context.Context, queue string) (amqp091.Table, bool) {
	args, found := amqp091.Table{}, amqp091.Table{}
	durable, autoDelete := true, false
	for range 16 { // there are fewer arguments
		err := t.control.do(ctx, func(_ *conn, ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare(queue, durable, autoDelete, false, false, args)
			return err
		})
		if err == nil {
			return found, true
		}
		d, ok := parseDifference(reasonOf(err))
		if !ok {
			return nil, false
		}
		var value any = d.there
		if m := thereNow.FindStringSubmatch(d.there); m != nil {
			value = m[1]
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && m[2] != "longstr" {
				value = n
			}
			if m[2] == "bool" {
				value = m[1] == "true"
			}
		}
		switch d.argument {
		case "durable":
			durable = !durable
		case "auto_delete":
			autoDelete = !autoDelete
		default:
			args[d.argument] = value
		}
		found[d.argument] = value
	}
	return nil, false
}

// Depth counts what waits. Held is what this process holds: the protocol does
// not tell of others.
func (t *Transport) Depth(ctx context.Context, topic, group string) (transport.Depth, error) {
	var d transport.Depth
	if err := checkNames(topic, group); err != nil {
		return d, err
	}
	queue, _, err := t.queueOf(ctx, t.route(topic), group)
	if err != nil {
		return d, err
	}
	q, err := t.stat(ctx, queue)
	if err != nil {
		return d, about("queue", queue, err)
	}
	d.Ready = int64(q.Messages)
	t.mu.Lock()
	for s := range t.members {
		if s.queue == queue {
			d.Held += s.unsettled()
		}
	}
	t.mu.Unlock()
	d.Delayed, err = t.delayed(ctx, queue)
	return d, err
}
