package runtime_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// BenchmarkEngine is one message from Receive to Settle on the memory
// transport, with 1,000 keys, 256 handlers at once and a handler that does nothing.
func BenchmarkEngine(b *testing.B) {
	for _, chain := range []string{"bare", "default"} {
		for _, headers := range []int{0, 3} {
			b.Run(chain+"/headers="+strconv.Itoa(headers), func(b *testing.B) {
				benchEngine(b, chain == "default", headers)
			})
		}
	}
}

func benchEngine(b *testing.B, chain bool, headers int) {
	b.Helper()
	broker := memory.NewBroker(memory.Options{MaxMessages: b.N + 1})
	tr := broker.Transport()
	require.NoError(b, tr.Declare(b.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "bench", Group: "bench"}))
	p, err := tr.OpenProducer(b.Context())
	require.NoError(b, err)
	batch := make([]*message.Message, 0, 1000)
	for i := range b.N {
		m := &message.Message{UUID: "id-" + strconv.Itoa(i), Metadata: message.Metadata{transport.KeyHeader: strconv.Itoa(i % 1000)}}
		for h := range headers {
			m.Metadata["header-"+strconv.Itoa(h)] = "value"
		}
		if batch = append(batch, m); len(batch) == 1000 || i == b.N-1 {
			require.NoError(b, p.Publish(b.Context(), "bench", batch...))
			batch = batch[:0]
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	policy := transport.Policy{Concurrency: 256, Prefetch: 2048, Order: transport.OrderKey, Timeout: 1 << 40}
	if chain {
		policy.Middleware = middleware.Default(policy.Defaults("bench", tr.Capabilities()))
	}
	r := runtime.NewRouter(runtime.Options{})
	require.NoError(b, r.Consume("bench", tr, "bench", func(*message.Message) ([]*message.Message, error) {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil, nil
	}, policy))
	ctx, cancel := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ran <- r.Run(ctx) }()
	<-done
	b.StopTimer()
	cancel()
	require.NoError(b, <-ran)
}
