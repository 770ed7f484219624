package watermill

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

const (
	amqpWindow   = 256 // messages that wait for their confirmation at once
	amqpChannels = 8   // of one producer
)

// amqpProducer publishes mandatory and confirmed, on a connection of its own:
// a broker with an alarm blocks those that publish.
type amqpProducer struct {
	k     *amqpKind
	slots chan struct{} // one for each call under way

	mu     sync.Mutex
	conn   *amqp.Connection
	line   *line
	idle   []*amqpChannel
	closed bool
}

type amqpChannel struct {
	*amqp.Channel

	conn    *amqp.Connection
	returns chan amqp.Return
	closed  chan *amqp.Error
}

func (k *amqpKind) publisher() (transport.Producer, error) {
	p := &amqpProducer{k: k, slots: make(chan struct{}, amqpChannels)}
	ch, err := p.channel()
	if err != nil {
		return nil, refuseAMQP(err)
	}
	p.put(ch)
	return p, nil
}

// channel gives one that nobody else uses.
func (p *amqpProducer) channel() (*amqpChannel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, transport.ErrClosed
	}
	for len(p.idle) > 0 {
		ch := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if !ch.IsClosed() {
			return ch, nil
		}
	}
	if p.conn == nil || p.conn.IsClosed() {
		line := &line{}
		config, err := p.k.config(line.dial)
		if err != nil {
			return nil, err
		}
		conn, err := amqp.DialConfig(p.k.url, *config)
		if err != nil {
			return nil, err
		}
		p.conn, p.line = conn, line
	}
	ch, err := p.conn.Channel()
	if err != nil {
		return nil, err
	}
	out := &amqpChannel{
		Channel: ch, conn: p.conn,
		returns: ch.NotifyReturn(make(chan amqp.Return, amqpWindow)),
		closed:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	return out, ch.Confirm(false)
}

func (p *amqpProducer) put(ch *amqpChannel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ch.IsClosed() && !p.closed {
		p.idle = append(p.idle, ch)
	}
}

// Publish returns when the broker has each message in a queue, or has said
// that it has not.
func (p *amqpProducer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	if err := transport.CheckName("topic", topic); err != nil && len(msgs) > 0 {
		return refusedName(topic, len(msgs), err)
	}
	failed := &transport.PublishError{Topic: topic}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	msgs = copies(msgs) //nolint:contextcheck // a message has its own
	for at := 0; at < len(msgs); at += amqpWindow {
		batch := msgs[at:min(len(msgs), at+amqpWindow)]
		if err := p.window(ctx, topic, batch, at, failed); err != nil {
			return fmt.Errorf("publish to topic %q: %w", topic, err) // nothing is known of any
		}
	}
	return result(failed)
}

func result(e *transport.PublishError) error {
	if len(e.Failed) == 0 {
		return nil
	}
	return e
}

// window publishes a few, and adds to failed what was not taken. An error is
// about all of them.
func (p *amqpProducer) window(ctx context.Context, topic string, msgs []*message.Message, at int, failed *transport.PublishError) error {
	fail := func(i int, err error, permanent bool) {
		failed.Failed = append(failed.Failed, transport.PublishFailure{Index: at + i, Err: err, Permanent: permanent})
	}
	taken, err := await(ctx, func() ([]bool, error) { return p.send(ctx, topic, msgs) }, nil)
	if err != nil && ctx.Err() != nil {
		p.cut() // a write may hang, and nobody knows what became of the messages
	}
	tooLarge := isCode(err, amqp.PreconditionFailed)
	switch {
	case err == nil:
		for i, ok := range taken {
			if !ok {
				fail(i, fmt.Errorf("no queue takes messages of topic %q, or the broker has refused it: start a worker that reads the topic, bind a queue to its exchange, or have such messages dropped: broker: {watermill-amqp: {url: …, unrouted: drop}}", topic), false)
			}
		}
		return nil
	case tooLarge && len(msgs) == 1, isCode(err, amqp.AccessRefused):
		for i := range msgs {
			fail(i, err, true)
		}
		return nil
	case tooLarge: // one of them: which one
		for i := range msgs {
			if err := p.window(ctx, topic, msgs[i:i+1], at+i, failed); err != nil {
				return err
			}
		}
		return nil
	default:
		return err
	}
}

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Code == code
}

// send gives for each message whether a queue has it.
func (p *amqpProducer) send(ctx context.Context, topic string, msgs []*message.Message) ([]bool, error) {
	ch, err := p.channel()
	if err != nil {
		return nil, err
	}
	defer p.put(ch)
	waiting := make([]*amqp.DeferredConfirmation, len(msgs))
	for i, m := range msgs {
		publishing, _ := amqpMarshaler{}.Marshal(m) // it never fails
		mandatory := p.k.Unrouted != "drop"
		waiting[i], err = ch.PublishWithDeferredConfirmWithContext(ctx, p.k.exchange(topic), p.k.routingKey(topic), mandatory, false, publishing)
		if err != nil {
			return nil, ch.why(err)
		}
	}
	taken := make([]bool, len(msgs))
	for i, w := range waiting {
		if taken[i], err = w.WaitContext(ctx); err != nil {
			_ = ch.Close() // confirmations of these would be taken for those of others
			return nil, err
		}
	}
	if ch.IsClosed() {
		return nil, ch.why(amqp.ErrClosed)
	}
	// A return comes before the confirmation of its message.
	for len(ch.returns) > 0 {
		id, _ := (<-ch.returns).Headers[uuidHeader].(string)
		for i, m := range msgs {
			if m.UUID == id {
				taken[i] = false
			}
		}
	}
	return taken, nil
}

// why is the reason a channel was closed for; err if there is none.
func (c *amqpChannel) why(err error) error {
	if !c.IsClosed() {
		return err
	}
	if reason := <-c.closed; reason != nil { // it is closed with the channel
		return reason
	}
	return err
}

// cut breaks the connection.
func (p *amqpProducer) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line != nil {
		p.line.cut()
	}
}

// Close ends the connection.
func (p *amqpProducer) Close(ctx context.Context) error {
	p.mu.Lock()
	conn, line := p.conn, p.line
	p.closed, p.conn, p.idle = true, nil, nil
	p.mu.Unlock()
	if conn == nil || conn.IsClosed() {
		return nil
	}
	err := awaitErr(ctx, conn.Close)
	if err != nil {
		line.cut()
	}
	if errors.Is(err, amqp.ErrClosed) {
		return nil
	}
	return err
}
