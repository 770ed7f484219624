package telemetry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/leat-io/leat/runtime/telemetry"
)

// TestMetrics holds the table against the rules for names.
func TestMetrics(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range telemetry.Metrics() {
		name := m.Prometheus()
		require.False(t, seen[name], name)
		seen[name] = true
		require.Regexp(t, `^leat_[a-z]+(_[a-z]+)*$`, name)
		require.Regexp(t, `^[A-Z0-9].*\.$`, m.About, name)
		for _, a := range m.Attributes {
			require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, a, name)
		}
	}
	require.True(t, seen["leat_attempt_duration_seconds"])
	require.True(t, seen["leat_in_flight_size_bytes"])
	require.True(t, seen["leat_outcomes_total"])
}

func TestConventions(t *testing.T) {
	t.Parallel()
	require.Equal(t, messagingconv.OperationTypeProcess, messagingconv.OperationTypeAttr(telemetry.OperationProcess))
	require.Equal(t, messagingconv.OperationTypeSend, messagingconv.OperationTypeAttr(telemetry.OperationSend))
	for kind, system := range map[string]string{
		"sqlite": "sqlite", "postgres": "postgresql", "mysql": "mysql", "kafka": "kafka", "amqp": "rabbitmq", "memory": "memory",
		"watermill-amqp": "rabbitmq", "watermill-kafka": "kafka", "watermill-postgres": "postgresql",
	} {
		require.Equal(t, system, telemetry.System(kind), kind)
	}
}

func TestNoProviderNoTracer(t *testing.T) {
	t.Parallel()
	require.Nil(t, telemetry.NewTracer(nil, nil))
}

// TestMessagesAreNotPartOfTheProgramsTrace: a worker that is started within a
// span, and with baggage, would else have all messages for ever in one trace.
func TestMessagesAreNotPartOfTheProgramsTrace(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	mine, err := baggage.Parse("mine=1")
	require.NoError(t, err)
	ctx, span := tp.Tracer("program").Start(baggage.ContextWithBaggage(t.Context(), mine), "program")
	defer span.End()
	tracer := telemetry.NewTracer(tp, nil)
	of := tracer.Process(ctx, telemetry.Message{Topic: "in"}, map[string]string{"baggage": "%%%"})
	telemetry.End(of, "")
	require.Zero(t, baggage.FromContext(of).Len())
	require.False(t, spans.GetSpans()[0].Parent.IsValid())
	require.NotEqual(t, span.SpanContext().TraceID(), trace.SpanContextFromContext(of).TraceID())
}

// TestInjectTakesTheOldAway: a tracestate of another trace must not stay.
func TestInjectTakesTheOldAway(t *testing.T) {
	t.Parallel()
	tracer := telemetry.NewTracer(noop.NewTracerProvider(), nil)
	headers := map[string]string{"traceparent": "old", "tracestate": "old=1", "baggage": "old=1", "own": "kept"}
	tracer.Inject(context.Background(), headers)
	require.Equal(t, map[string]string{"own": "kept"}, headers)
}
