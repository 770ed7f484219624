package watermill_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// TestKafkaRebalance: a member that joins gets its share although another holds
// messages, as one does whose handlers fail and wait. Known bad (W5): the stock
// subscriber holds up the whole group.
func TestKafkaRebalance(t *testing.T) {
	t.Parallel()
	brokers := hosts(brokertest.URL(t, "kafka"))
	const patience = 15 * time.Second // three times the drain, a quarter of sarama's own rebalance timeout
	kind, err := watermill.Kafka(watermill.KafkaOptions{Brokers: brokers, Partitions: 4})
	require.NoError(t, err)
	for name, of := range map[string]struct {
		member func(t *testing.T, group string) transport.Transport
		joins  bool
	}{
		"kind": {func(*testing.T, string) transport.Transport { return kind }, true},
		"stock": {func(t *testing.T, group string) transport.Transport {
			t.Helper()
			c := kafka.DefaultSaramaSubscriberConfig()
			c.Consumer.Offsets.Initial = -2 // the oldest
			sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
				Brokers: brokers, ConsumerGroup: group, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: c,
			}, wm.NopLogger{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, sub.Close()) })
			return watermill.Transport("stock", sub, nil)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, group := "t"+unique(), "g"+unique()
			require.NoError(t, kind.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic}))
			p, err := kind.OpenProducer(t.Context())
			require.NoError(t, err)
			publish := func(n int) {
				for i := range n {
					m := message.NewMessage(fmt.Sprint(i), nil)
					m.Metadata.Set(transport.KeyHeader, fmt.Sprint(i))
					require.NoError(t, p.Publish(t.Context(), topic, m))
				}
			}
			join := func() transport.Consumer {
				tr := of.member(t, group)
				c, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{
					Topics: []string{topic}, Group: group, Topology: transport.TopologyOff, Span: 1 << 20, Prefetch: 100, Base: context.WithoutCancel(t.Context()),
				})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close(context.Background()) })
				return c
			}
			publish(32)
			first := join()
			held := 0
			for held < 4 { // one of each partition, at least
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				ds, err := first.Receive(ctx, 100, 1)
				cancel()
				require.NoError(t, err)
				held += len(ds)
			}
			second := join()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			ds, err := second.Receive(ctx, 1, 1)
			require.Equal(t, of.joins, err == nil && len(ds) > 0, "%v", err)
			require.NoError(t, p.Close(context.Background()))
		})
	}
}

// TestKafkaLeftOut: a member that has been let in by the group of each topic
// leaves nothing out.
func TestKafkaLeftOut(t *testing.T) {
	t.Parallel()
	kind, err := watermill.Kafka(watermill.KafkaOptions{Brokers: hosts(brokertest.URL(t, "kafka")), Partitions: 2})
	require.NoError(t, err)
	topics := []string{"t" + unique(), "t" + unique()}
	p, err := kind.OpenProducer(t.Context())
	require.NoError(t, err)
	for _, topic := range topics {
		require.NoError(t, kind.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic}))
		require.NoError(t, p.Publish(t.Context(), topic, message.NewMessage(topic, nil)))
	}
	require.NoError(t, p.Close(t.Context()))
	c, err := kind.OpenConsumer(t.Context(), transport.ConsumerConfig{
		Topics: topics, Group: "g" + unique(), Topology: transport.TopologyOff, Span: 1 << 20, Prefetch: 100, Base: context.WithoutCancel(t.Context()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	for got := 0; got < len(topics); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ds, err := c.Receive(ctx, 100, 1<<20)
		cancel()
		require.NoError(t, err)
		got += len(ds)
	}
	why, _ := c.(transport.Partial).LeftOut() //nolint:forcetypeassert // it is ours
	require.Empty(t, why)
}
