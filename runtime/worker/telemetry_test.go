package worker_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

// series picks the lines of one metric.
func series(w *worker.Worker, name string) []string {
	body := get(w.Handler(), "/metrics").Body.String()
	return regexp.MustCompile(`(?m)^`+name+`(\{.*)? \S+$`).FindAllString(body, -1)
}

// failingStore is a store that is out while broken is set.
type failingStore struct {
	middleware.DedupStore

	mu     sync.Mutex
	broken bool
}

func (s *failingStore) set(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

func (s *failingStore) Claim(ctx context.Context, k middleware.DedupKey, lease time.Duration) (middleware.DedupState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return middleware.DedupState{}, errors.New("no route to host")
	}
	return s.DedupStore.Claim(ctx, k, lease)
}

// TestStoreMetrics: an outage of the store is a state and a count, by consumer.
func TestStoreMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := &failingStore{DedupStore: middleware.NewMemoryDedup(0), broken: true}
		w, err := worker.New(builtin.All(), yaml("broker: memory://x\nstore: broken\nconsumers:\n  c: {topic: in, handler: discard, dedup: {}}\n  other: {topic: other, handler: discard, dedup: {}}\n  without: {topic: in, handler: discard}\n"),
			brokenStore(func(context.Context) (middleware.DedupStore, func() error, error) {
				return fails, func() error { return nil }, nil
			}))
		require.NoError(t, err)
		publish(t, w, message.NewMessage("1", nil))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		require.ElementsMatch(t, []string{`leat_store_up{consumer="c"} 0`, `leat_store_up{consumer="other"} 1`}, series(w, "leat_store_up"))
		require.ElementsMatch(t, []string{`leat_store_failures_total{consumer="c"} 1`, `leat_store_failures_total{consumer="other"} 0`}, series(w, "leat_store_failures_total"))
		fails.set(false)
		time.Sleep(time.Minute)
		require.Contains(t, series(w, "leat_store_up"), `leat_store_up{consumer="c"} 1`)
		require.Contains(t, series(w, "leat_outcomes_total"), `leat_outcomes_total{consumer="c",outcome="handled"} 1`)
		stop()
		require.NoError(t, <-ended)
	})
}

// TestOwnProviders: a program that exports by itself gets everything.
func TestOwnProviders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, spans := metric.NewManualReader(), tracetest.NewInMemoryExporter()
		w, err := worker.New(builtin.All(), yaml(memoryYAML+"telemetry: {traces: otlp}\n"), worker.Handle("work", nothing),
			worker.Meters(metric.NewMeterProvider(metric.WithReader(reader))),
			worker.Tracers(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))))
		require.NoError(t, err)
		publish(t, w, message.NewMessage("1", nil))
		runUntilIdle(t, w)
		require.Len(t, spans.GetSpans(), 1)
		require.Equal(t, "process in", spans.GetSpans()[0].Name)
		require.Equal(t, http.StatusNotFound, get(w.Handler(), "/metrics").Code)
	})
}

// collector takes spans as OTLP over HTTP.
type collector struct {
	*httptest.Server

	mu    sync.Mutex
	down  bool
	calls []string // path, Authorization and body
}

func newCollector(t *testing.T, down bool) *collector {
	t.Helper()
	c := &collector{down: down}
	c.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		if c.down {
			rw.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// traced runs a worker with `traces: otlp` over one message until it is idle.
func traced(t *testing.T, endpoint string) *record {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20canary")
	log := new(record)
	var inside trace.SpanContext
	w, err := worker.New(builtin.All(), yaml(memoryYAML+"telemetry: {traces: otlp}\n"), worker.Instance("one"), worker.Log(newLog(log)),
		worker.Handle("work", func(m *message.Message) ([]*message.Message, error) {
			inside = trace.SpanContextFromContext(m.Context())
			return nil, nil
		}))
	require.NoError(t, err)
	publish(t, w, message.NewMessage("1", nil))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer stop()
		_ = w.Router().WaitIdle(ctx, 50*time.Millisecond)
	}()
	require.NoError(t, w.Run(ctx))
	require.True(t, inside.IsSampled())
	return log
}

//nolint:paralleltest // the environment
func TestTracesOverOTLP(t *testing.T) {
	c := newCollector(t, false)
	log := traced(t, c.URL)
	require.Len(t, c.got(), 1, "what is left goes out at the stop")
	call := c.got()[0]
	require.True(t, strings.HasPrefix(call, "/v1/traces Bearer canary "), call)
	for _, part := range []string{"process in", "service.name", "test", "service.instance.id", "one"} {
		require.Contains(t, call, part)
	}
	require.NotContains(t, log.String(), "spans")
}

//nolint:paralleltest // the environment
func TestTracesThatNobodyTakes(t *testing.T) {
	log := traced(t, newCollector(t, true).URL)
	require.Contains(t, log.String(), `level=WARN msg="spans cannot be exported and are lost"`)
	require.NotContains(t, log.String(), "canary")
}
