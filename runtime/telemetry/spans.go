package telemetry

import (
	"context"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"
)

// Operations of OpenTelemetry's messaging conventions. With the topic they
// name the spans: "process orders.placed".
const (
	OperationProcess = "process"
	OperationSend    = "send"
)

// Attributes of spans that the conventions do not have.
const (
	SpanConsumer = "leat.consumer"
	SpanAttempt  = "leat.attempt"
	SpanOutcome  = "leat.outcome"
)

// Tracer makes spans.
type Tracer struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

// NewTracer makes one; nil where there is no provider. The default propagator
// is W3C trace context and baggage.
func NewTracer(tp trace.TracerProvider, p propagation.TextMapPropagator) *Tracer {
	if tp == nil {
		return nil
	}
	if p == nil {
		p = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, quietBaggage{})
	}
	return &Tracer{tp.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL)), p}
}

// quietBaggage takes baggage that is not well formed for none. The library's
// own would print a line for each such message.
type quietBaggage struct{ propagation.Baggage }

// Extract reads the header.
func (b quietBaggage) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	found, err := baggage.Parse(carrier.Get(b.Fields()[0]))
	if err != nil || found.Len() == 0 {
		return ctx
	}
	return baggage.ContextWithBaggage(ctx, found)
}

// Message is what spans tell of a message. None of it is content.
type Message struct {
	System    string // see [System]
	Topic     string
	ID        string
	Size      int // of the payload
	Consumer  string
	Group     string // of a received one
	Partition int32
	Attempt   int
}

// System is the conventions' name of a kind of broker.
func System(kind string) string {
	switch kind = strings.TrimPrefix(kind, "watermill-"); kind {
	case "amqp":
		return string(messagingconv.SystemRabbitMQ)
	case "postgres":
		return semconv.DBSystemNamePostgreSQL.Value.AsString()
	}
	return kind
}

// Process begins the span of one attempt. Its parent is what the headers of
// the message carry, so that all attempts of a message have the same; without
// any it begins a trace. What comes back is ctx with the span and the baggage.
func (t *Tracer) Process(ctx context.Context, m Message, headers map[string]string) context.Context {
	// What ctx holds belongs to whoever runs the worker, not to the message.
	ctx = baggage.ContextWithoutBaggage(trace.ContextWithSpanContext(ctx, trace.SpanContext{}))
	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(headers))
	ctx, _ = t.tracer.Start(ctx, OperationProcess+" "+m.Topic, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(attributes(OperationProcess, m),
			semconv.MessagingConsumerGroupName(m.Group),
			semconv.MessagingDestinationPartitionID(strconv.Itoa(int(m.Partition))),
			attribute.Int(SpanAttempt, m.Attempt),
		)...))
	return ctx
}

// Send begins the span of publishing one message, within the span of ctx.
func (t *Tracer) Send(ctx context.Context, m Message) context.Context {
	ctx, _ = t.tracer.Start(ctx, OperationSend+" "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attributes(OperationSend, m)...))
	return ctx
}

// Inject puts the span and the baggage of ctx into headers, in place of what
// they carried before.
func (t *Tracer) Inject(ctx context.Context, headers map[string]string) {
	for _, name := range t.propagator.Fields() {
		delete(headers, name)
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(headers))
}

func attributes(operation string, m Message) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, 10)
	out = append(out,
		semconv.MessagingOperationName(operation),
		semconv.MessagingOperationTypeKey.String(operation),
		semconv.MessagingSystemKey.String(m.System),
		semconv.MessagingDestinationName(m.Topic),
		semconv.MessagingMessageBodySize(m.Size),
		attribute.String(SpanConsumer, m.Consumer),
	)
	if m.ID != "" {
		out = append(out, semconv.MessagingMessageID(m.ID))
	}
	return out
}

// End ends the span of ctx. An errorClass makes it a failed one; the text of
// an error may hold a secret or a part of a message, and stays out.
func End(ctx context.Context, errorClass string, attrs ...attribute.KeyValue) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attrs...)
	if errorClass != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(errorClass))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
