package runtime_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// BenchmarkObserved is a message from Receive to Settle on the memory
// transport with a handler that does nothing, by what is told of it.
func BenchmarkObserved(b *testing.B) {
	for name, o := range map[string]runtime.Options{
		"nothing":     {},
		"metrics":     {MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))},
		"traces=none": {TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))},
		"traces=all":  {TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()))},
	} {
		b.Run(name, func(b *testing.B) { benchObserved(b, o) })
	}
}

func benchObserved(b *testing.B, o runtime.Options) {
	b.Helper()
	tr := memory.NewBroker(memory.Options{MaxMessages: b.N + 1}).Transport()
	require.NoError(b, tr.Declare(b.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "in", Group: "g"}))
	p, err := tr.OpenProducer(b.Context())
	require.NoError(b, err)
	for i := range b.N {
		require.NoError(b, p.Publish(b.Context(), "in", msg(strconv.Itoa(i), strconv.Itoa(i%1000), "")))
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	r := runtime.NewRouter(o)
	require.NoError(b, r.Consume("c", tr, "in", func(*message.Message) ([]*message.Message, error) {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil, nil
	}, transport.Policy{Group: "g", Concurrency: 256, Prefetch: 2048, Order: transport.OrderKey}))
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- r.Run(ctx) }()
	<-done
	b.StopTimer()
	cancel()
	require.NoError(b, <-ended)
}
