package runtime_test

import (
	"errors"
	goruntime "runtime"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/leat-io/leat/runtime/transport"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	publisherID = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + publisherID + "-01"
)

// trace has the world's router make spans.
func (w *world) trace() *tracetest.InMemoryExporter {
	spans := tracetest.NewInMemoryExporter()
	w.opts.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	return spans
}

// named picks the spans of a name, in the order they ended.
func named(spans *tracetest.InMemoryExporter, name string) (out []tracetest.SpanStub) {
	for _, s := range spans.GetSpans() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

func attributesOf(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

// TestTrace follows one message: published elsewhere, retried, its output
// handled by a second consumer and its failure dead-lettered.
func TestTrace(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		spans := w.trace()
		var mu sync.Mutex
		var inside []trace.SpanContext
		var tenants []string
		look := func(m *message.Message) {
			mu.Lock()
			defer mu.Unlock()
			inside = append(inside, trace.SpanContextFromContext(m.Context()))
			tenants = append(tenants, baggage.FromContext(m.Context()).Member("tenant").Value())
		}
		held := message.Metadata{"traceparent": traceparent, "own": "kept"}
		w.add("first", "in", func(m *message.Message) ([]*message.Message, error) {
			look(m)
			if transport.AttemptFrom(m.Context()).Number() == 1 {
				return nil, errors.New("secret")
			}
			return []*message.Message{{UUID: "out", Payload: []byte("y"), Metadata: held}}, nil
		}, w.policy(func(p *transport.Policy) { p.PublishTo = "mid" }))
		var mid message.Metadata
		w.add("second", "mid", func(m *message.Message) ([]*message.Message, error) {
			look(m)
			mid = m.Metadata
			return nil, permanent{errors.New("secret")}
		}, w.policy())
		w.start()
		w.publish("in", msg("1", "k", "x", "traceparent", traceparent, "tracestate", "vendor=1", "baggage", "tenant=acme"))
		w.settled()

		attempts, sent := named(spans, "process in"), named(spans, "send mid")
		second, dead := named(spans, "process mid"), named(spans, "send mid--g--dead")
		require.Len(w, attempts, 2)
		require.Len(w, sent, 1)
		require.Len(w, second, 1)
		require.Len(w, dead, 1)
		require.Len(w, spans.GetSpans(), 5)
		for _, s := range spans.GetSpans() {
			require.Equal(w, traceID, s.SpanContext.TraceID().String(), s.Name)
			require.Equal(w, "vendor=1", s.SpanContext.TraceState().String(), s.Name)
			for _, a := range s.Attributes {
				require.NotContains(w, a.Value.String(), "secret")
			}
			require.Empty(w, s.Events)
			require.Empty(w, s.Status.Description)
		}
		for i, s := range attempts {
			require.Equal(w, publisherID, s.Parent.SpanID().String(), "all attempts have the same parent")
			require.True(w, s.Parent.IsRemote())
			require.Equal(w, trace.SpanKindConsumer, s.SpanKind)
			require.Equal(w, s.SpanContext, inside[i])
		}
		kind := w.tr.Kind()
		a := attributesOf(attempts[0])
		require.NotEmpty(w, a["messaging.destination.partition.id"])
		delete(a, "messaging.destination.partition.id")
		require.Equal(w, map[string]string{
			"messaging.operation.name": "process", "messaging.operation.type": "process", "messaging.system": kind,
			"messaging.destination.name": "in", "messaging.consumer.group.name": "g", "messaging.message.id": "1",
			"messaging.message.body.size": "1", "leat.consumer": "first", "leat.attempt": "1", "leat.outcome": "retried",
			"error.type": "errors.errorString",
		}, a)
		require.Equal(w, codes.Error, attempts[0].Status.Code)
		require.Equal(w, codes.Unset, attempts[1].Status.Code)
		require.Equal(w, "handled", attributesOf(attempts[1])["leat.outcome"])
		require.Equal(w, "2", attributesOf(attempts[1])["leat.attempt"])

		require.Equal(w, attempts[1].SpanContext.SpanID(), sent[0].Parent.SpanID())
		require.Equal(w, trace.SpanKindProducer, sent[0].SpanKind)
		require.False(w, attempts[1].EndTime.Before(sent[0].EndTime), "it ends when all is confirmed")
		require.Equal(w, sent[0].SpanContext.SpanID(), second[0].Parent.SpanID())
		require.Equal(w, "dead", attributesOf(second[0])["leat.outcome"])
		require.Equal(w, second[0].SpanContext.SpanID(), dead[0].Parent.SpanID())
		require.Equal(w, []string{"acme", "acme", "acme"}, tenants)
		require.Equal(w, message.Metadata{"traceparent": traceparent, "own": "kept"}, held, "the handler's own map")

		letter := w.read("mid--g--dead")[0]
		require.Equal(w, "00-"+traceID+"-"+sent[0].SpanContext.SpanID().String()+"-01", mid.Get("traceparent"))
		require.Equal(w, "vendor=1", mid.Get("tracestate"))
		require.Equal(w, "kept", mid.Get("own"))
		for _, name := range []string{"traceparent", "tracestate", "baggage"} {
			require.Equal(w, mid.Get(name), letter.Headers.Get(name), "a dead letter keeps what was received")
		}
	})
}

// TestNoTraceContext: a message without begins a trace, and one with
// nonsense is handled like it.
func TestNoTraceContext(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		spans := w.trace()
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
		w.publish("in", msg("1", "", ""), msg("2", "", "", "traceparent", "00-nonsense", "baggage", "%%%"))
		w.settled()
		got := named(spans, "process in")
		require.Len(w, got, 2)
		for _, s := range got {
			require.False(w, s.Parent.IsValid())
		}
		require.NotEqual(w, got[0].SpanContext.TraceID(), got[1].SpanContext.TraceID())
	})
}

// TestTracesOff: headers are left alone.
func TestTracesOff(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			require.False(w, trace.SpanContextFromContext(m.Context()).IsValid())
			return []*message.Message{message.NewMessage("", nil)}, nil
		}, w.policy(func(p *transport.Policy) { p.PublishTo = "out" }))
		w.publish("in", msg("1", "", "", "traceparent", traceparent))
		w.settled()
		require.Empty(w, w.read("out")[0].Headers.Get("traceparent"))
	})
}

// TestSpansEnd: every way out of a handler ends its span.
func TestSpansEnd(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		spans := w.trace()
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			switch m.UUID {
			case "panic":
				panic("at the disco")
			case "goexit":
				goruntime.Goexit()
			case "output":
				return []*message.Message{message.NewMessage("", nil)}, nil // and there is no publish_to
			}
			return nil, skip{errors.New("skip")}
		}, w.policy(func(p *transport.Policy) { p.Retry = backoff(w, 1) }))
		w.publish("in", msg("panic", "", ""), msg("goexit", "", ""), msg("output", "", ""), msg("skip", "", ""))
		w.settled()
		got := map[string]string{}
		for _, s := range named(spans, "process in") {
			a := attributesOf(s)
			got[a["messaging.message.id"]] = a["leat.outcome"] + " " + a["error.type"]
		}
		require.Equal(w, map[string]string{
			"panic": "dead panic", "goexit": "dead panic", "output": "dead errors.errorString", "skip": "skipped ",
		}, got)
		require.Len(w, named(spans, "send in--g--dead"), 3)
	})
}
