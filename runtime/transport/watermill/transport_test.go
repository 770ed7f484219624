package watermill_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

func TestMain(m *testing.M) {
	// The metrics of sarama's have one goroutine for the process, and no way to
	// end it; a connection of watermill-amqp's leaves one behind that waits for
	// a reconnect that is not to come.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		goleak.IgnoreTopFunction("github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp.(*ConnectionWrapper).handleConnectionClose"))
}

// fake is a Subscriber and a Publisher under a test's thumb.
type fake struct {
	topics      map[string]chan *message.Message
	initialized []string
	err         error
	hang        chan struct{}
}

func (f *fake) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if f.hang != nil {
		<-f.hang
	}
	if f.err != nil {
		return nil, f.err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			select {
			case m, ok := <-f.topics[topic]:
				if !ok {
					return
				}
				out <- m
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (f *fake) SubscribeInitialize(topic string) error {
	f.initialized = append(f.initialized, topic)
	return f.err
}

func (f *fake) Publish(topic string, msgs ...*message.Message) error {
	if f.hang != nil {
		<-f.hang
	}
	for _, m := range msgs {
		f.topics[topic] <- m
	}
	return f.err
}

func (f *fake) Close() error { panic("it is not ours to close") }

func newFake(topics ...string) *fake {
	f := &fake{topics: map[string]chan *message.Message{}}
	for _, topic := range topics {
		f.topics[topic] = make(chan *message.Message, 10)
	}
	return f
}

func open(t *testing.T, tr transport.Transport, topics ...string) transport.Consumer {
	t.Helper()
	c, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: topics, Group: "g", Base: t.Context()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func settle(t *testing.T, c transport.Consumer, v transport.Verdict, d *transport.Delivery) {
	t.Helper()
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: d, Verdict: v}}))
}

func receive(t *testing.T, c transport.Consumer) []*transport.Delivery {
	t.Helper()
	ds, err := c.Receive(t.Context(), 10, 1)
	require.NoError(t, err)
	return ds
}

func TestGoChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, wm.NopLogger{})
		defer func() { require.NoError(t, ps.Close()) }()
		tr := watermill.Transport("gochannel", ps, ps)
		require.Equal(t, "gochannel", tr.Kind())
		require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "orders"}))
		c := open(t, tr, "orders")
		pub, err := tr.OpenProducer(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, pub.Close(t.Context())) }()

		published := make(chan error, 1)
		go func() {
			m := &message.Message{UUID: "id", Payload: []byte("body"), Metadata: message.Metadata{transport.KeyHeader: "k", "a": "1"}}
			published <- pub.Publish(t.Context(), "orders", m)
		}()
		d := receive(t, c)[0]
		require.Equal(t, "id", d.ID)
		require.Equal(t, "body", string(d.Payload))
		require.Equal(t, "k", d.Key)
		require.Equal(t, map[string]string{transport.KeyHeader: "k", "a": "1"}, d.Headers.Map())
		require.Equal(t, "orders", d.Assignment.Topic)
		require.Equal(t, uint64(1), d.Session)

		settle(t, c, transport.Record, d)
		settle(t, c, transport.Release, d)
		again := receive(t, c)[0]
		require.Equal(t, "id", again.ID)
		synctest.Wait()
		require.Empty(t, published, "it is not acked yet")
		settle(t, c, transport.Ack, again)
		require.NoError(t, <-published)
	})
}

func TestCloseNeitherAcksNorNacks(t *testing.T) {
	t.Parallel()
	f := newFake("a")
	tr := watermill.Transport("fake", f, f)
	c := open(t, tr, "a")
	held, unread := message.NewMessage("held", nil), message.NewMessage("unread", nil)
	f.topics["a"] <- held
	d := receive(t, c)[0]
	f.topics["a"] <- unread
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, c.Close(t.Context()))
	require.True(t, d.Assignment.Revoked())
	settle(t, c, transport.Ack, d)
	for _, m := range []*message.Message{held, unread} {
		select {
		case <-m.Acked():
			t.Error(m.UUID, "is acked")
		case <-m.Nacked():
			t.Error(m.UUID, "is nacked")
		default:
		}
	}
	_, err := c.Receive(t.Context(), 1, 1)
	require.ErrorIs(t, err, transport.ErrClosed)

	f.topics["a"] <- message.NewMessage("next", nil)
	require.Equal(t, uint64(2), receive(t, open(t, tr, "a"))[0].Session)
}

func TestSeveralTopicsAndPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b")
		c := open(t, watermill.Transport("fake", f, f), "a", "b")
		for topic := range f.topics {
			f.topics[topic] <- message.NewMessage(topic, nil)
		}
		synctest.Wait()
		ds := receive(t, c)
		require.Len(t, ds, 2)
		c.Pause(ds[0].Assignment)
		for topic := range f.topics {
			f.topics[topic] <- message.NewMessage(topic, nil)
		}
		synctest.Wait()
		require.Equal(t, ds[1].Topic, receive(t, c)[0].Topic)
		got := make(chan []*transport.Delivery)
		go func() {
			ds, _ := c.Receive(t.Context(), 10, 1)
			got <- ds
		}()
		synctest.Wait()
		c.Resume(ds[0].Assignment)
		require.Equal(t, ds[0].Topic, (<-got)[0].Topic)
	})
}

func TestCloseEndsAReceiveThatIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := open(t, watermill.Transport("fake", f, f), "a")
		f.topics["a"] <- message.NewMessage("", nil)
		c.Pause(receive(t, c)[0].Assignment)
		got := make(chan error)
		go func() {
			_, err := c.Receive(t.Context(), 1, 1)
			got <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close(t.Context()))
		require.ErrorIs(t, <-got, transport.ErrClosed)
	})
}

func TestReceiveEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := open(t, watermill.Transport("fake", f, f), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Receive(ctx, 1, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		f.topics["a"] <- nil
		f.topics["a"] <- message.NewMessage("good", nil)
		d := receive(t, c)[0]
		require.Equal(t, "good", d.ID, "a nil message is passed over")

		close(f.topics["a"])
		_, err = c.Receive(t.Context(), 1, 1)
		require.EqualError(t, err, `topic "a": subscription has ended`)
		require.True(t, d.Assignment.Revoked())
	})
}

func TestCallsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		f.hang = make(chan struct{})
		tr := watermill.Transport("fake", f, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := tr.OpenConsumer(ctx, transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		pub, err := tr.OpenProducer(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, pub.Publish(ctx, "a", message.NewMessage("", nil)), context.DeadlineExceeded)
		close(f.hang) // and the consumer that comes too late is closed
	})
}

func TestErrorsNameWhatFailed(t *testing.T) {
	t.Parallel()
	f := newFake("a")
	f.err = errors.New("no")
	tr := watermill.Transport("fake", f, f)
	_, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
	require.EqualError(t, err, `declare topic "a": no`)
	_, err = tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Topology: transport.TopologyOff, Base: t.Context()})
	require.EqualError(t, err, `subscribe to topic "a": no`)
	pub, err := tr.OpenProducer(t.Context())
	require.NoError(t, err)
	require.EqualError(t, pub.Publish(t.Context(), "a", message.NewMessage("", nil)), `publish to topic "a": no`)
}

func TestDeclare(t *testing.T) {
	t.Parallel()
	f := newFake()
	tr := watermill.Transport("fake", f, f)
	d := transport.Declaration{Topic: "a"}
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyOff, d))
	require.Empty(t, f.initialized)
	require.True(t, transport.Refused(tr.Declare(t.Context(), transport.TopologyVerify, d)))
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, d))
	require.Equal(t, []string{"a"}, f.initialized)
	_, err := tr.Depth(t.Context(), "a", "g")
	require.ErrorIs(t, err, transport.ErrUnsupported)
}
