package amqp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// sweeper deletes what transports of a test have made, when it ends.
type sweeper struct {
	url string

	mu        sync.Mutex
	exchanges map[string]bool
	queues    map[string]bool
}

func newSweeper(tb transporttest.TB, url string) *sweeper {
	tb.Helper()
	s := &sweeper{url: url, exchanges: map[string]bool{}, queues: map[string]bool{}}
	tb.Cleanup(s.sweep)
	return s
}

func (s *sweeper) sweep() {
	c, err := amqp091.Dial(s.url)
	if err != nil {
		return // its broker is gone with all it had
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return
	}
	for q := range s.queues {
		_, _ = ch.QueueDelete(q, false, false, false) // what is not there is deleted
	}
	for e := range s.exchanges {
		_ = ch.ExchangeDelete(e, false, false)
	}
}

func (s *sweeper) note(topic, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanges[topic], s.queues[topic] = true, true
	if group == "" {
		return
	}
	q := amqp.Queue(topic, group)
	s.queues[q] = true
	for _, d := range amqp.DelayQueues(q) {
		s.queues[d] = true
	}
}

// swept notes what a transport makes.
type swept struct {
	transport.Transport
	s *sweeper
}

func (t swept) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	for _, d := range ds {
		t.s.note(d.Topic, d.Group)
	}
	return t.Transport.Declare(ctx, mode, ds...)
}

func (t swept) OpenConsumer(ctx context.Context, c transport.ConsumerConfig) (transport.Consumer, error) {
	for _, topic := range c.Topics {
		t.s.note(topic, c.Group)
	}
	return t.Transport.OpenConsumer(ctx, c)
}

func (t swept) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p, err := t.Transport.OpenProducer(ctx)
	return sweptProducer{p, t.s}, err
}

type sweptProducer struct {
	transport.Producer
	s *sweeper
}

func (p sweptProducer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	p.s.note(topic, "")
	return p.Producer.Publish(ctx, topic, msgs...)
}

// open makes a transport of the broker at url.
func open(tb transporttest.TB, url string, change ...func(*amqp.Options)) *amqp.Transport {
	tb.Helper()
	o := amqp.Options{URL: config.NewSecret(url), Name: tb.Name(), ConnectTimeout: 5 * time.Second}
	for _, fn := range change {
		fn(&o)
	}
	tr, err := amqp.Open(o)
	require.NoError(tb, err)
	return tr
}

// raw is a channel of the client library itself.
func raw(tb testing.TB, url string) *amqp091.Channel {
	tb.Helper()
	c, err := amqp091.Dial(url)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	ch, err := c.Channel()
	require.NoError(tb, err)
	return ch
}

// before4 tells whether the broker is older than RabbitMQ 4.0.
func before4(tb testing.TB, url string) bool {
	tb.Helper()
	c, err := amqp091.Dial(url)
	require.NoError(tb, err)
	defer c.Close()
	version, _ := c.Properties["version"].(string)
	return strings.HasPrefix(version, "3.")
}
