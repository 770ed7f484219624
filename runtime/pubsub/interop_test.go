package pubsub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	kinds "github.com/leat-io/leat/runtime/transport/watermill"
)

// stock is Watermill's own Pub/Sub, as its users configure it.
type stock struct {
	open func(tb testing.TB, url, group string) (message.Publisher, message.Subscriber, error)
	// ours are the transports that speak to the same broker.
	ours map[string]func(url string) (transport.Transport, error)
}

func stocks() map[string]stock {
	native := all()
	return map[string]stock{
		"kafka": {
			open: func(_ testing.TB, url, group string) (message.Publisher, message.Subscriber, error) {
				brokers := strings.Split(strings.TrimPrefix(url, "kafka://"), ",")
				c := wmkafka.DefaultSaramaSubscriberConfig()
				c.Consumer.Offsets.Initial = -2 // the oldest
				sub, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
					Brokers: brokers, ConsumerGroup: group, Unmarshaler: wmkafka.DefaultMarshaler{}, OverwriteSaramaConfig: c,
				}, watermill.NopLogger{})
				if err != nil {
					return nil, nil, err
				}
				pub, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: brokers, Marshaler: wmkafka.DefaultMarshaler{}}, watermill.NopLogger{})
				return pub, sub, err
			},
			ours: map[string]func(string) (transport.Transport, error){
				"leat": func(url string) (transport.Transport, error) { return native["kafka"].connect(url, 2) },
				"kind": func(url string) (transport.Transport, error) {
					return kinds.Kafka(kinds.KafkaOptions{Brokers: strings.Split(strings.TrimPrefix(url, "kafka://"), ",")})
				},
			},
		},
		"rabbitmq": {
			open: func(_ testing.TB, url, group string) (message.Publisher, message.Subscriber, error) {
				c := wmamqp.NewDurablePubSubConfig(url, wmamqp.GenerateQueueNameTopicNameWithSuffix(group))
				sub, err := wmamqp.NewSubscriber(c, watermill.NopLogger{})
				if err != nil {
					return nil, nil, err
				}
				pub, err := wmamqp.NewPublisher(c, watermill.NopLogger{})
				return pub, sub, err
			},
			ours: map[string]func(string) (transport.Transport, error){
				"leat": func(url string) (transport.Transport, error) { return native["rabbitmq"].connect(url, 0) },
				"kind": func(url string) (transport.Transport, error) {
					return kinds.AMQP(kinds.AMQPOptions{URL: config.NewSecret(url)})
				},
			},
		},
	}
}

// TestPlainWatermill: what plain Watermill publishes is read by Leat, and the
// other way round, with the same id, bytes and metadata.
func TestPlainWatermill(t *testing.T) {
	t.Parallel()
	for broker, s := range stocks() {
		for name, connect := range s.ours {
			t.Run(broker+"/"+name, func(t *testing.T) {
				t.Parallel()
				url := brokertest.URL(t, broker)
				topic := fmt.Sprintf("t%08x", rand.Uint32())
				tr, err := connect(url)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, tr.Close(context.Background())) })
				pub, sub := pubsub.NewPublisher(tr), pubsub.NewSubscriber(tr, "leat-"+topic)
				t.Cleanup(func() {
					require.NoError(t, pub.Close())
					require.NoError(t, sub.Close())
				})
				ours, err := sub.Subscribe(t.Context(), topic)
				require.NoError(t, err)
				theirPub, theirSub, err := s.open(t, url, "plain-"+topic)
				require.NoError(t, err)
				t.Cleanup(func() {
					require.NoError(t, theirPub.Close())
					require.NoError(t, theirSub.Close())
				})
				theirs, err := theirSub.Subscribe(t.Context(), topic)
				require.NoError(t, err)

				for _, p := range []message.Publisher{theirPub, pub} {
					sent := message.NewMessage(watermill.NewUUID(), every())
					sent.Metadata.Set("plain", "text")
					sent.Metadata.Set("größe", "漢 🙂")
					sent.Metadata.Set("empty", "")
					require.NoError(t, p.Publish(topic, sent.Copy()))
					for _, from := range []<-chan *message.Message{ours, theirs} {
						got := next(t, from)
						require.Equal(t, sent.UUID, got.UUID)
						require.Equal(t, sent.Payload, got.Payload)
						require.Equal(t, sent.Metadata, got.Metadata)
						got.Ack()
					}
				}
			})
		}
	}
}

func every() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func next(t *testing.T, msgs <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m := <-msgs:
		return m
	case <-time.After(time.Minute):
		t.Fatal("no message came")
		return nil
	}
}
