package amqp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// rig is a transport with one topic and group of the test's own.
type rig struct {
	*testing.T
	url          string
	tr           transport.Transport
	topic, group string
	log          *logged
}

// logged is a log that a test reads.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t *testing.T, address string, change ...func(*amqp.Options)) *rig {
	t.Helper()
	r := &rig{T: t, url: address, log: new(logged), group: "g"}
	r.topic = strings.NewReplacer("/", ".", "_", ".", "#", ".").Replace(t.Name()) + fmt.Sprintf(".%x", time.Now().UnixNano())
	change = append(change, ours, func(o *amqp.Options) { o.Log = slog.New(slog.NewTextHandler(r.log, nil)) })
	tr := open(t, address, change...)
	r.tr = swept{tr, newSweeper(t, address)}
	t.Cleanup(func() { require.NoError(t, tr.Close(context.Background())) })
	return r
}

func (r *rig) within() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	r.Cleanup(cancel)
	return ctx
}

func (r *rig) declare(ds ...transport.Declaration) {
	r.Helper()
	if ds == nil {
		ds = []transport.Declaration{{Topic: r.topic, Group: r.group}}
	}
	require.NoError(r, r.tr.Declare(r.within(), transport.TopologyDeclare, ds...))
}

func (r *rig) config(name string) transport.ConsumerConfig {
	return transport.ConsumerConfig{
		Name: name, Topics: []string{r.topic}, Group: r.group, Topology: transport.TopologyDeclare,
		Prefetch: 256, PrefetchBytes: 1 << 24, Base: context.WithoutCancel(r.Context()), Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
}

func (r *rig) consumer(name ...string) transport.Consumer {
	r.Helper()
	c, err := r.tr.OpenConsumer(r.within(), r.config(strings.Join(append(name, "c"), "-")))
	require.NoError(r, err)
	r.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (r *rig) receive(c transport.Consumer, n int) (ds []*transport.Delivery) {
	r.Helper()
	for ctx := r.within(); len(ds) < n; {
		more, err := c.Receive(ctx, n-len(ds), 1<<24)
		require.NoError(r, err, "%d of %d came", len(ds), n)
		ds = append(ds, more...)
	}
	return ds
}

func (r *rig) publish(n int) {
	r.Helper()
	p := r.producer()
	msgs := make([]*message.Message, n)
	for i := range msgs {
		msgs[i] = message.NewMessage(fmt.Sprintf("m-%03d", i), []byte("body"))
	}
	require.NoError(r, p.Publish(r.within(), r.topic, msgs...))
}

func (r *rig) producer() transport.Producer {
	r.Helper()
	p, err := r.tr.OpenProducer(r.within())
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, p.Close(context.Background())) })
	return p
}

func (r *rig) ack(c transport.Consumer, ds ...*transport.Delivery) {
	r.Helper()
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
	}
	require.NoError(r, c.Settle(r.within(), batch))
}

func (r *rig) queue() string { return amqp.Queue(r.topic, r.group) }

// TestNeverReturns: a message whose handler never returns, and all that its
// worker holds beside it, survive any number of crashes.
func TestNeverReturns(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	for _, kind := range []string{"quorum", "classic"} {
		for _, held := range []int{1, 256} {
			t.Run(fmt.Sprint(kind, " ", held), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, address, func(o *amqp.Options) { o.QueueType = kind })
				r.declare()
				r.publish(held)
				for i := range 30 {
					c := r.consumer(fmt.Sprint("c", i)) // one that is lost may not come back at once
					require.Len(t, r.receive(c, held), held)
					amqp.Kill(c)
				}
				c := r.consumer()
				ds := r.receive(c, held)
				for i, d := range ds {
					require.Equal(t, fmt.Sprintf("m-%03d", i), d.ID, "they come back in order")
					require.True(t, d.Redelivered)
					require.Zero(t, d.Attempts)
					require.Empty(t, d.Headers, "what the broker counts is not the message's")
				}
				r.ack(c, ds...)
			})
		}
	}
}

// TestQueueDeleted: no message comes of it; the queue is declared again, or
// the consumer stops.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	for _, then := range []string{"declare", "stop"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, address, func(o *amqp.Options) { o.QueueDeleted = then })
			r.declare()
			c := r.consumer()
			_, err := raw(t, address).QueueDelete(r.queue(), false, false, false)
			require.NoError(t, err)
			ds, err := c.Receive(r.within(), 10, 1<<20)
			require.Empty(t, ds)
			require.ErrorContains(t, err, "was deleted under its consumer")
			require.Contains(t, r.log.String(), "level=ERROR")
			require.Contains(t, r.log.String(), "times=1")
			require.NoError(t, c.Close(r.within()))
			c, err = r.tr.OpenConsumer(r.within(), r.config("c"))
			if then == "stop" {
				require.ErrorContains(t, err, "queue_deleted: stop")
				require.True(t, transport.Refused(err))
				return
			}
			require.NoError(t, err)
			r.publish(1)
			require.Equal(t, "m-000", r.receive(c, 1)[0].ID)
			require.NoError(t, c.Close(r.within()))
		})
	}
}

// TestCancelled: RabbitMQ 4.3 cancels a consumer of a queue that is there, too.
func TestCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"), func(o *amqp.Options) { o.QueueDeleted = "stop" })
	r.declare()
	c := r.consumer()
	err := amqp.Cancelled(t.Context(), c, r.queue())
	require.ErrorContains(t, err, "consumer_timeout")
	require.NotContains(t, err.Error(), "deleted")
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorContains(t, amqp.Cancelled(ended, c, r.queue()), "does not say whether that is there")
	require.NoError(t, r.consumer().Close(r.within()), "nothing has stopped it")
	require.ErrorContains(t, amqp.Cancelled(t.Context(), c, "none"), "was deleted")
}

// TestUnrouted: what no queue takes is an error of its messages alone, until one does.
func TestUnrouted(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"))
	r.declare(transport.Declaration{Topic: r.topic})
	p := r.producer()
	msgs := []*message.Message{message.NewMessage("same", []byte("x")), message.NewMessage("same", []byte("x")), message.NewMessage("", nil)}
	err := p.Publish(r.within(), r.topic, msgs...)
	var failed *transport.PublishError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Failed, 3)
	for _, f := range failed.Failed {
		require.ErrorContains(t, f.Err, fmt.Sprintf("no queue takes it from exchange %q", r.topic))
		require.ErrorContains(t, f.Err, "broker: {amqp: {url: …, unrouted: drop}}")
		require.False(t, f.Permanent)
	}
	r.declare()
	require.NoError(t, p.Publish(r.within(), r.topic, msgs...))
	require.Len(t, r.receive(r.consumer(), 3), 3)
}

func TestUnroutedMayBeDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"), func(o *amqp.Options) { o.Unrouted = "drop" })
	r.declare(transport.Declaration{Topic: r.topic})
	require.NoError(t, r.producer().Publish(r.within(), r.topic, message.NewMessage("m", nil)))
}

// TestTooLargeForTheBroker: its message fails for good, and the others go on.
func TestTooLargeForTheBroker(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	size := 17 << 20
	if before4(t, address) {
		size = 129 << 20
	}
	r := newRig(t, address, func(o *amqp.Options) { o.MaxMessage = 1 << 30 })
	r.declare()
	p := r.producer()
	err := p.Publish(r.within(), r.topic, message.NewMessage("large", make([]byte, size)))
	var failed *transport.PublishError
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Failed[0].Permanent, err)
	require.ErrorContains(t, err, "larger than configured max size")
	require.NoError(t, p.Publish(r.within(), r.topic, message.NewMessage("small", nil)))
}

// TestExisting: an exchange and a queue of others are used as they are.
func TestExisting(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	name := fmt.Sprintf("existing.%x", time.Now().UnixNano())
	ch := raw(t, address)
	require.NoError(t, ch.ExchangeDeclare(name, "topic", true, false, false, false, nil))
	_, err := ch.QueueDeclare(name+".q", true, false, false, false, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 3, "x-message-ttl": 600000})
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(name+".q", "orders.#", name, false, nil))
	t.Cleanup(func() {
		_, _ = ch.QueueDelete(name+".q", false, false, false)
		_ = ch.ExchangeDelete(name, false, false)
	})
	r := newRig(t, address, func(o *amqp.Options) {
		o.Topics = map[string]amqp.TopicOptions{"theirs": {Exchange: name, RoutingKey: "orders.placed", Queue: name + ".q"}}
	})
	r.topic = "theirs"
	r.declare()
	r.publish(2)
	c := r.consumer()
	r.ack(c, r.receive(c, 2)...)
	require.Contains(t, r.log.String(), "delivery limit")
	require.Contains(t, r.log.String(), "limit=3")
	require.Contains(t, r.log.String(), "x-message-ttl")
}

// TestMismatch: what is there and what was asked are both named.
func TestMismatch(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	ch := raw(t, address)
	r := newRig(t, address)
	_, err := ch.QueueDeclare(r.queue(), true, false, false, false, amqp091.Table{"x-queue-type": "classic"})
	require.NoError(t, err)
	err = r.tr.Declare(r.within(), transport.TopologyDeclare, transport.Declaration{Topic: r.topic, Group: r.group})
	require.ErrorContains(t, err, "classic")
	require.ErrorContains(t, err, "quorum")
	require.ErrorContains(t, err, r.queue())
	require.True(t, transport.Refused(err))

	other := newRig(t, address)
	require.NoError(t, ch.ExchangeDeclare(other.topic, "direct", true, false, false, false, nil))
	err = other.tr.Declare(r.within(), transport.TopologyDeclare, transport.Declaration{Topic: other.topic})
	require.ErrorContains(t, err, "direct")
	require.ErrorContains(t, err, "fanout")

	if before4(t, address) {
		return // there is no limit by default
	}
	limited := newRig(t, address)
	_, err = ch.QueueDeclare(limited.queue(), true, false, false, false, amqp091.Table{"x-queue-type": "quorum"})
	require.NoError(t, err)
	limited.declare()
	require.Contains(t, limited.log.String(), "delivery limit", "as before an upgrade of the broker")
}

// TestNoEntry: who is not let in is told why, and nobody sees the password.
func TestNoEntry(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	u, err := url.Parse(address)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		change  func(*url.URL)
		want    string
		refused bool
	}{
		"wrong password": {func(u *url.URL) { u.User = url.UserPassword("guest", "hunter2") }, "Login was refused", true},
		"no such vhost":  {func(u *url.URL) { u.Path = "/none" }, "vhost none not found", true},
		"no broker":      {func(u *url.URL) { u.Host = "127.0.0.1:1" }, "connection refused", false},
		"no such host":   {func(u *url.URL) { u.Host = "nowhere.invalid" }, "nowhere.invalid", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := *u
			tc.change(&at)
			tr := open(t, address, func(o *amqp.Options) { o.URL = config.NewSecret(at.String()) })
			err := tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "t"})
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, tc.refused, transport.Refused(err), err)
			require.NotContains(t, err.Error(), "hunter2")
			require.NoError(t, tr.Close(t.Context()))
		})
	}
}

// TestSingleActive: one member takes, and the next goes on where the order stands.
func TestSingleActive(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"), func(o *amqp.Options) { o.SingleActive = true })
	require.Equal(t, transport.ScopeGroup, r.tr.Capabilities().KeyOrder)
	r.declare()
	first, second := r.consumer(), r.consumer()
	r.publish(10)
	ds := r.receive(first, 6)
	r.ack(first, ds[0], ds[1])
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := second.Receive(short, 1, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, first.Close(r.within()))
	for i, d := range r.receive(second, 8) {
		require.Equal(t, fmt.Sprintf("m-%03d", i+2), d.ID)
	}
}

// TestManyTopics: more topics than channels are kept for, or than the broker allows.
func TestManyTopics(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"), func(o *amqp.Options) { o.Unrouted = "drop" })
	p := r.producer()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for range 2 {
				if err := p.Publish(r.within(), fmt.Sprint(r.topic, ".", i), message.NewMessage("m", nil)); err != nil {
					t.Errorf("topic %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}
