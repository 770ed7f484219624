package worker

import (
	"context"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/telemetry"
)

// Meters is where metrics go, for a program with an exporter of its own. Then
// there is no /metrics.
func Meters(mp metric.MeterProvider) Option {
	return func(o *options) { o.meters = mp }
}

// Tracers is where spans go, for a program with an exporter of its own. It
// takes the place of what the file says of traces.
func Tracers(tp trace.TracerProvider) Option {
	return func(o *options) { o.tracers = tp }
}

// buildMetrics makes what /metrics serves, unless metrics go elsewhere or
// nobody could ask for them.
func (w *Worker) buildMetrics() error {
	if w.meters == nil && w.cfg.HTTP.Listen != config.Off {
		registry := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry),
			otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		w.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(resource.Empty()),
			sdkmetric.WithCardinalityLimit(0)) // every attribute comes from the configuration
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		w.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, CoalesceGather: true})
	}
	if w.meters == nil {
		return nil
	}
	return telemetry.Observe(w.meters.Meter(telemetry.Scope), w.collect)
}

// collect gives what the engine does not know.
func (w *Worker) collect(_ context.Context, o telemetry.Observer) {
	o.Flag(telemetry.BuildInfo, true, attribute.String(telemetry.AttrName, w.cfg.Name),
		attribute.String(telemetry.AttrVersion, version()), attribute.String(telemetry.AttrGoVersion, goruntime.Version()))
	for consumer, s := range w.watched {
		name := attribute.String(telemetry.AttrConsumer, consumer)
		o.Flag(telemetry.StoreUp, !s.down.Load(), name)
		o.Count(telemetry.StoreFailures, s.failures.Load(), name)
	}
}

// buildTraces makes a tracer whose exporter [Worker.startTraces] adds.
func (w *Worker) buildTraces() error {
	if w.tracers != nil || w.cfg.Telemetry.Traces != config.TracesOTLP {
		return nil
	}
	res, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(w.cfg.Name), semconv.ServiceInstanceID(w.instance.ID), semconv.ServiceVersion(version())),
		resource.WithFromEnv()) // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word
	if err != nil {
		return fmt.Errorf("telemetry.traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res))
	w.tracers, w.exported = provider, provider
	w.onClose("traces", func(ctx context.Context) error {
		if err := provider.Shutdown(ctx); err != nil { // no reason to end with a failure
			w.log.WarnContext(ctx, "last spans were not exported", "error", err)
		}
		return nil
	})
	return nil
}

// startTraces begins to export spans, as the OTEL_EXPORTER_OTLP variables say.
func (w *Worker) startTraces(ctx context.Context) error {
	if w.exported == nil {
		return nil
	}
	exporter, err := otlptracehttp.New(ctx) // connects to nothing
	if err != nil {
		return fmt.Errorf("telemetry.traces: %w", err)
	}
	w.exported.RegisterSpanProcessor(sdktrace.NewBatchSpanProcessor(&loggedExporter{SpanExporter: exporter, log: w.log}))
	return nil
}

// loggedExporter logs when exporting begins to fail and when it succeeds
// again. What was not exported is gone: spans must not fill the memory.
type loggedExporter struct {
	sdktrace.SpanExporter

	log   *slog.Logger
	since atomic.Pointer[time.Time] // nil: it works
}

// ExportSpans never fails, or the error would go to OpenTelemetry's global handler.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	now := time.Now()
	switch since := e.since.Load(); {
	case err != nil && since == nil:
		e.since.Store(&now)
		e.log.WarnContext(ctx, "spans cannot be exported and are lost", "error", err)
	case err == nil && since != nil:
		e.since.Store(nil)
		e.log.InfoContext(ctx, "spans are exported again", "after", now.Sub(*since))
	}
	return nil
}
