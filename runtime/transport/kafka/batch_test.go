package kafka_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestPublishIsOneBatch: what one Publish has for a partition goes in one request.
func TestPublishIsOneBatch(t *testing.T) {
	t.Parallel()
	w, c := fake(t, 1)
	p, err := w.connect().OpenProducer(within(t))
	require.NoError(t, err)
	require.NoError(t, p.Publish(within(t), w.topic, message.NewMessage("first", nil))) // it finds the topic

	var requests atomic.Int64
	c.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	msgs := make([]*message.Message, 100)
	for i := range msgs {
		msgs[i] = message.NewMessage(strconv.Itoa(i), []byte("x"))
	}
	require.NoError(t, p.Publish(within(t), w.topic, msgs...))
	require.EqualValues(t, 1, requests.Load())
	require.NoError(t, p.Close(within(t)))
}

