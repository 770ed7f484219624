package watermill_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// rabbit is the kind on a real broker, with a channel of the test's own.
type rabbit struct {
	*testing.T

	url string
	ch  *amqp.Channel
}

func newRabbit(t *testing.T) *rabbit {
	t.Helper()
	at := brokertest.URL(t, "rabbitmq")
	conn, err := amqp.Dial(at)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	ch, err := conn.Channel()
	require.NoError(t, err)
	return &rabbit{t, at, ch}
}

func (r *rabbit) open(o watermill.AMQPOptions) transport.Transport {
	r.Helper()
	if o.URL.IsZero() {
		o.URL = config.NewSecret(r.url)
	}
	tr, err := watermill.AMQP(o)
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, tr.Close(context.Background())) })
	return tr
}

func (r *rabbit) producer(tr transport.Transport) transport.Producer {
	r.Helper()
	p, err := tr.OpenProducer(r.Context())
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, p.Close(context.Background())) })
	return p
}

func (r *rabbit) consumer(tr transport.Transport, topic, group string) transport.Consumer {
	r.Helper()
	c, err := tr.OpenConsumer(r.Context(), transport.ConsumerConfig{Topics: []string{topic}, Group: group, Prefetch: 4, Base: context.WithoutCancel(r.Context())})
	require.NoError(r, err)
	return c
}

func (r *rabbit) receive(c transport.Consumer) ([]*transport.Delivery, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	return c.Receive(ctx, 10, 1)
}

// What no queue takes is no success. Known bad (W4): to the stock publisher it
// is, also if it is told to confirm and to be mandatory.
func TestAMQPUnrouted(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	topic := "t" + unique()
	tr := r.open(watermill.AMQPOptions{})
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic}))
	batch := []*message.Message{message.NewMessage("1", nil), message.NewMessage("2", nil)}
	partly, ok := errors.AsType[*transport.PublishError](r.producer(tr).Publish(t.Context(), topic, batch...))
	require.True(t, ok)
	require.Len(t, partly.Failed, 2)
	require.ErrorContains(t, partly, "no queue takes messages of topic")
	require.ErrorContains(t, partly, "broker: {watermill-amqp: {url: …, unrouted: drop}}")
	require.False(t, partly.Failed[0].Permanent, "a group may come")
	require.NoError(t, r.producer(r.open(watermill.AMQPOptions{Unrouted: "drop"})).Publish(t.Context(), topic, batch...))

	c := wmamqp.NewDurablePubSubConfig(r.url, nil)
	c.Publish.ConfirmDelivery, c.Publish.Mandatory = true, true
	stock, err := wmamqp.NewPublisher(c, wm.NopLogger{})
	require.NoError(t, err)
	require.NoError(t, stock.Publish(topic, batch...), "if this is an error now, it can be taken off the list of what is known bad")
	require.NoError(t, stock.Close())
}

// One that is too large fails alone, and for good.
func TestAMQPTooLarge(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	topic := "t" + unique()
	tr := r.open(watermill.AMQPOptions{})
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: "g"}))
	p := r.producer(tr)
	for range 2 {
		err := p.Publish(t.Context(), topic, message.NewMessage("1", nil), message.NewMessage("large", make([]byte, 17<<20)), message.NewMessage("2", nil))
		partly, ok := errors.AsType[*transport.PublishError](err)
		require.True(t, ok, err)
		require.Len(t, partly.Failed, 1)
		require.Equal(t, 1, partly.Failed[0].Index)
		require.True(t, partly.Failed[0].Permanent)
	}
	err := p.Publish(t.Context(), "t"+unique(), message.NewMessage("1", nil))
	require.ErrorContains(t, err, "no exchange")
	_, ok := errors.AsType[*transport.PublishError](err)
	require.False(t, ok, "it may be declared yet")
}

// What is there is taken as it is; what is missing is made, with no limit on deliveries.
func TestAMQPTopology(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	topic := "t" + unique()
	d := transport.Declaration{Topic: topic, Group: "payments"}
	tr := r.open(watermill.AMQPOptions{Queue: "{topic}_payments"})
	require.True(t, transport.Refused(tr.Declare(t.Context(), transport.TopologyVerify, d)))
	require.NoError(t, r.ch.ExchangeDeclare(topic, "fanout", true, false, false, false, nil))
	require.ErrorContains(t, tr.Declare(t.Context(), transport.TopologyVerify, d), `queue "`+topic+`_payments" does not exist`)
	_, err := r.ch.QueueDeclare(topic+"_payments", true, false, false, false, nil) // classic, as watermill-amqp makes it
	require.NoError(t, err)
	for _, mode := range []transport.Topology{transport.TopologyVerify, transport.TopologyDeclare, transport.TopologyDeclare} {
		require.NoError(t, tr.Declare(t.Context(), mode, d))
	}
	require.NoError(t, r.producer(tr).Publish(t.Context(), topic, message.NewMessage("m", nil)))
	got, there, err := r.ch.Get(topic+"_payments", true)
	require.NoError(t, err)
	require.True(t, there, "declaring has bound it")
	require.Equal(t, "m", got.Headers["_watermill_message_uuid"])

	own := r.open(watermill.AMQPOptions{})
	require.NoError(t, own.Declare(t.Context(), transport.TopologyDeclare, d))
	_, err = r.ch.QueueDeclare(topic+"--payments", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": -1})
	require.NoError(t, err, "it is a quorum queue without a limit")
	for _, group := range []string{"a--b", "-a", "a-"} {
		require.True(t, transport.Refused(own.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: group})), group)
	}

	queue := "q" + unique()
	plain := r.open(watermill.AMQPOptions{Exchange: "none", QueueType: "classic"})
	require.NoError(t, plain.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: queue}))
	require.NoError(t, r.producer(plain).Publish(t.Context(), queue, message.NewMessage("m", nil)))
	c := r.consumer(plain, queue, "any")
	ds, err := r.receive(c)
	require.NoError(t, err)
	require.Equal(t, "m", ds[0].ID)
	settle(t, c, transport.Ack, ds[0])
	require.NoError(t, c.Close(t.Context()))
}

// A queue that is deleted ends the consumer by name. Known bad (W7): the stock
// subscriber hands out an empty message then.
func TestAMQPQueueDeleted(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	topic := "t" + unique()
	tr := r.open(watermill.AMQPOptions{})
	c := r.consumer(tr, topic, "g")
	_, err := r.ch.QueueDelete(topic+"--g", false, false, false)
	require.NoError(t, err)
	ds, err := r.receive(c)
	require.Empty(t, ds)
	require.ErrorContains(t, err, "queue deleted or channel closed by the broker")
	require.NoError(t, c.Close(t.Context()))
	c = r.consumer(tr, topic, "g") // and is made again
	require.NoError(t, r.producer(tr).Publish(t.Context(), topic, message.NewMessage("m", nil)))
	ds, err = r.receive(c)
	require.NoError(t, err)
	require.Equal(t, "m", ds[0].ID)
	require.NoError(t, c.Close(t.Context()))

	c, err = tr.OpenConsumer(t.Context(), transport.ConsumerConfig{
		Topics: []string{"t" + unique()}, Group: "g", Topology: transport.TopologyOff, Prefetch: 4, Base: context.WithoutCancel(t.Context()),
	})
	require.NoError(t, err)
	_, err = r.receive(c)
	require.ErrorContains(t, err, "queue deleted", "it was never there")
	require.NoError(t, c.Close(t.Context()))
}

// A connection that is lost ends the consumer, and the next one knows what is
// handed out again.
func TestAMQPConnectionLost(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	topic := "t" + unique()
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	proxy := brokertest.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	tr := r.open(watermill.AMQPOptions{URL: config.NewSecret(u.String()), Heartbeat: time.Second})
	c := r.consumer(tr, topic, "g")
	p := r.producer(tr)
	require.NoError(t, p.Publish(t.Context(), topic, message.NewMessage("m", []byte("x"))))
	ds, err := r.receive(c)
	require.NoError(t, err)
	first := ds[0]
	require.False(t, first.Redelivered)

	proxy.Cut()
	_, err = r.receive(c)
	require.ErrorContains(t, err, "connection lost")
	require.True(t, first.Assignment.Revoked())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	_ = c.Close(ctx) // it may say that the connection is gone
	cancel()
	require.Error(t, p.Publish(t.Context(), topic, message.NewMessage("lost", nil)))
	proxy.Heal()

	c = r.consumer(tr, topic, "g")
	ds, err = r.receive(c)
	require.NoError(t, err)
	require.Equal(t, "m", ds[0].ID)
	require.True(t, ds[0].Redelivered)
	require.Greater(t, ds[0].Session, first.Session)
	settle(t, c, transport.Ack, ds[0])
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, p.Publish(t.Context(), topic, message.NewMessage("again", nil)))
}

func TestTLSOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]watermill.TLSOptions{
		"tls ca: ":              {CA: "no-such-file"},
		"holds no certificate":  {CA: "amqp_test.go"},
		"tls cert: ":            {Cert: "no-such-file", Key: "no-such-file"},
		"key belong together: ": {Cert: "one"},
	} {
		err := o.Validate()
		if err == nil {
			_, err = watermill.Kafka(watermill.KafkaOptions{Brokers: []string{"h:1"}, TLS: &o})
		}
		require.ErrorContains(t, err, want)
	}
}
