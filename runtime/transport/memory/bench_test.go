package memory_test

import (
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// BenchmarkReceiveSettle is one published message from Receive to Settle.
func BenchmarkReceiveSettle(b *testing.B) {
	tr := memory.New("bench", memory.Options{MaxMessages: b.N})
	p, err := tr.OpenProducer(b.Context())
	require.NoError(b, err)
	for i := range b.N {
		m := &message.Message{UUID: "id", Payload: message.Payload("payload"), Metadata: message.Metadata{transport.KeyHeader: strconv.Itoa(i % 1000)}}
		require.NoError(b, p.Publish(b.Context(), "bench", m))
	}
	c, err := tr.OpenConsumer(b.Context(), transport.ConsumerConfig{Name: "c", Topics: []string{"bench"}, Group: "g", Base: b.Context()})
	require.NoError(b, err)
	batch := make([]transport.Settlement, 0, 256)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += len(batch) { //nolint:modernize,nolintlint // counts what came, not calls
		ds, err := c.Receive(b.Context(), 256, 1<<20)
		require.NoError(b, err)
		batch = batch[:0]
		for _, d := range ds {
			batch = append(batch, transport.Settlement{Delivery: d, Verdict: transport.Ack})
		}
		require.NoError(b, c.Settle(b.Context(), batch))
	}
	b.StopTimer()
	require.NoError(b, c.Close(b.Context()))
}
