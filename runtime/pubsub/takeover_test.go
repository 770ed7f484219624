package pubsub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	kinds "github.com/leat-io/leat/runtime/transport/watermill"
)

// TestTakeOver: a group, a queue or a table that plain Watermill has worked on
// is gone on with where it has stopped.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	all := contests()
	for name, of := range map[string]struct {
		contest
		ours func(url, topic, group string) (transport.Transport, error)
	}{
		"kafka/leat": {all["kafka"], func(url, _, _ string) (transport.Transport, error) { return stocks()["kafka"].ours["leat"](url) }},
		"kafka/kind": {all["kafka"], func(url, _, _ string) (transport.Transport, error) { return all["kafka"].kind(url) }},
		"amqp/leat": {all["amqp"], func(url, topic, group string) (transport.Transport, error) {
			return amqp.Open(amqp.Options{URL: config.NewSecret(url), Topics: map[string]amqp.TopicOptions{
				topic: {Exchange: topic, Queue: topic + "_" + group},
			}})
		}},
		"amqp/kind": {all["amqp"], func(url, _, _ string) (transport.Transport, error) {
			return kinds.AMQP(kinds.AMQPOptions{URL: config.NewSecret(url), Queue: "{topic}_{group}"})
		}},
		"postgres/kind": {all["postgres"], func(url, _, _ string) (transport.Transport, error) { return all["postgres"].kind(url) }},
		"mysql/kind":    {all["mysql"], func(url, _, _ string) (transport.Transport, error) { return all["mysql"].kind(url) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := brokertest.URL(t, of.broker)
			topic, group := fmt.Sprintf("t%08x", rand.Uint32()), fmt.Sprintf("g%08x", rand.Uint32())
			pub, sub, err := of.stock(t, url, group)
			require.NoError(t, err)
			msgs, err := sub.Subscribe(t.Context(), topic)
			require.NoError(t, err)
			left := map[string]bool{}
			for i := range 10 {
				id := fmt.Sprint("m-", i)
				left[id] = true
				require.NoError(t, pub.Publish(topic, message.NewMessage(id, []byte("x"))))
			}
			for range 5 {
				m := next(t, msgs)
				require.True(t, left[m.UUID])
				delete(left, m.UUID)
				m.Ack()
				<-m.Context().Done() // it has the ack
			}
			require.NoError(t, sub.Close())
			require.NoError(t, pub.Close())

			tr, err := of.ours(url, topic, group)
			require.NoError(t, err)
			own := pubsub.NewSubscriber(tr, group)
			t.Cleanup(func() {
				require.NoError(t, own.Close())
				require.NoError(t, tr.Close(context.Background()))
			})
			rest, err := own.Subscribe(t.Context(), topic)
			require.NoError(t, err)
			for len(left) > 0 {
				m := next(t, rest)
				require.True(t, left[m.UUID], "%s was done with", m.UUID)
				delete(left, m.UUID)
				m.Ack()
			}
			select {
			case m := <-rest:
				require.Nil(t, m, "one more came")
			case <-time.After(300 * time.Millisecond):
			}
		})
	}
}
