package amqp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// Kill leaves a consumer as a killed process does: its socket is closed.
func Kill(c transport.Consumer) {
	killed := c.(*consumer)
	killed.late.end()
	killed.late.stop()
	_ = killed.conn.raw.Close()
}

// Trouble has a transport try other nodes before this one, for a while.
func Trouble(tr transport.Transport, address string) {
	t := tr.(*Transport)
	for _, n := range t.target.nodes {
		if n.address == address {
			t.troubles.note(n)
		}
	}
}

// Turns is the order in which nodes would be tried.
func Turns(tr transport.Transport) (addresses []string) {
	t := tr.(*Transport)
	for _, n := range t.troubles.turns(t.target.nodes) {
		addresses = append(addresses, n.address)
	}
	return addresses
}

// Bind binds a queue to an exchange.
func Bind(ctx context.Context, tr transport.Transport, exchange, queue string) error {
	return tr.(*Transport).bind(ctx, exchange, "", queue)
}

// Queue names the queue of a group.
func Queue(topic, group string) string { return queueName(topic, group) }

// DelayQueues names all that a queue may have.
func DelayQueues(queue string) []string {
	var names []string
	step := shortestDelay
	for range delaySteps {
		names = append(names, delayQueue(queue, step))
		step *= 4
	}
	return names
}

// StepFor is the time of the delay queue for a wait.
func StepFor(wait time.Duration) time.Duration { return stepFor(wait) }

// CutPublisher ends the connection that publishes.
func CutPublisher(ctx context.Context, tr transport.Transport) error {
	c, err := tr.(*Transport).outgoing.get(ctx)
	if err != nil {
		return err
	}
	return c.raw.Close()
}

// Arguments are those of a queue that is made at a broker of a version.
func Arguments(tr transport.Transport, v string) map[string]any {
	return tr.(*Transport).arguments(parseVersion(v), false)
}

// Explain is what becomes of a broker's error.
func Explain(err error) error { return explain(err) }

// ExplainLogin is what becomes of it while connecting.
func ExplainLogin(tr transport.Transport, err error) error {
	return tr.(*Transport).explainLogin(err)
}

// Encode makes what is published of a message.
func Encode(tr transport.Transport, m *message.Message, frameSize int) (amqp091.Publishing, error) {
	return tr.(*Transport).encode(m, frameSize)
}

// Decode reads a delivery.
func Decode(in amqp091.Delivery) (d transport.Delivery) {
	decode(&in, &d)
	return d
}

// Acks drives the acks of a channel without one: take adds deliveries, and
// each of settle acks some and gives what is told, a negative tag for multiple.
type Acks struct {
	s    *subscription
	tags map[uint64]*handed
}

// NewAcks has a prefetch, and a timer that never fires.
func NewAcks(prefetch int) *Acks {
	return &Acks{s: &subscription{prefetch: prefetch, lingers: true}, tags: map[uint64]*handed{}}
}

// Take adds the deliveries up to a tag.
func (a *Acks) Take(upTo uint64) {
	for tag := uint64(len(a.tags)) + 1; tag <= upTo; tag++ {
		h := &handed{s: a.s, tag: tag}
		a.tags[tag] = h
		a.s.link(h)
	}
}

// Settle acks tags; all is as for flush.
func (a *Acks) Settle(all bool, tags ...uint64) []int64 {
	a.s.mu.Lock()
	for _, tag := range tags {
		a.s.ack(a.tags[tag])
	}
	a.s.mu.Unlock()
	var told []int64
	for _, f := range a.s.acks(all) {
		tag := int64(f.tag)
		if f.multiple {
			tag = -tag
		}
		told = append(told, tag)
	}
	return told
}

// Open counts what is not acked.
func (a *Acks) Open() int64 { return a.s.unsettled() }

// Line is a channel that publishes.
type Line struct{ l *line }

// OpenLine opens one.
func OpenLine(ctx context.Context, tr transport.Transport) (*Line, error) {
	c, err := tr.(*Transport).outgoing.get(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	l, err := openLine(ctx, c, true)
	return &Line{l}, err
}

// Publish sends what encode would not make, too.
func (l *Line) Publish(ctx context.Context, exchange string, pubs ...amqp091.Publishing) ([]transport.PublishFailure, error) {
	items := make([]item, len(pubs))
	for i, p := range pubs {
		items[i] = item{index: i, exchange: exchange, pub: p}
	}
	return l.l.publish(ctx, items)
}

// Close closes it.
func (l *Line) Close() { l.l.close() }

// Block has the connection that publishes be as in an alarm.
func Block(ctx context.Context, tr transport.Transport, on bool) error {
	c, err := tr.(*Transport).outgoing.get(ctx)
	if err != nil {
		return err
	}
	reason := "a test asks"
	if c.blocked.Store(nil); on {
		c.blocked.Store(&reason)
	}
	return nil
}

// Lose ends what a consumer has, as a lost connection does.
func Lose(c transport.Consumer) { c.(*consumer).fail(errors.New("lost")) }

// AwaitDelays waits until nothing is on its way to a delay queue.
func AwaitDelays(c transport.Consumer) { c.(*consumer).late.moving.Wait() }

// Ended is what a consumer fails with when its channel was closed with an error
// before anything looked.
func Ended(base context.Context, closed *amqp091.Error) error {
	c := &consumer{t: new(Transport), conn: new(conn), cfg: transport.ConsumerConfig{Base: base}, look: make(chan struct{}, 1)}
	c.late.init(c)
	deliveries, errs, cancelled := make(chan amqp091.Delivery), make(chan *amqp091.Error, 1), make(chan string)
	errs <- closed
	close(deliveries)
	close(errs)
	close(cancelled)
	s := &subscription{c: c, queue: "q", deliveries: deliveries, closed: errs, cancelled: cancelled}
	s.start()
	_, err := c.Receive(base, 1, 1)
	return err
}

// Cancelled is what a consumer fails with when the broker cancels it on a queue.
func Cancelled(base context.Context, c transport.Consumer, queue string) error {
	of := c.(*consumer)
	failing := &consumer{t: of.t, conn: of.conn, cfg: transport.ConsumerConfig{Base: base, Log: slog.New(slog.DiscardHandler)}}
	return of.t.cancelled(&subscription{c: failing, queue: queue, a: transport.NewAssignment(base, "t", 0)})
}
