package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/telemetry"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

var metricsPage = filepath.Join("..", "..", "docs", "metrics.md")

// page is docs/metrics.md.
func page() string {
	var b strings.Builder
	b.WriteString(`# Metrics and spans

<!-- Written by a test from runtime/telemetry: go test ./runtime/worker -run TestMetricsPage -update -->

` + "`/metrics`" + ` serves these for Prometheus, next to the ` + "`go_*` and `process_*`" + ` metrics of its Go client. A program that exports by itself gives a MeterProvider (` + "`worker.Meters`, or `runtime.Options`" + `) and gets them by their OpenTelemetry names.

Counters and gauges are there, at 0, from the start. All labels come from the configuration or from a fixed list, so the number of series depends on the file alone. What waits for a retry is ` + "`leat_parked`" + ` in this process and ` + "`leat_backlog{state=\"delayed\"}`" + ` at the broker; a broker is asked for its backlog every five seconds at most.

| metric | kind | labels | OpenTelemetry | what it tells |
|---|---|---|---|---|
`)
	for _, m := range telemetry.Metrics() {
		labels := "–"
		if len(m.Attributes) > 0 {
			labels = "`" + strings.Join(m.Attributes, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", m.Prometheus(), m.Kind, labels, m.Name, m.About)
	}
	fmt.Fprintf(&b, `
## Spans

Off, unless the file says `+"`telemetry: {traces: otlp}`"+`, which exports them over HTTP as the `+"`OTEL_*`"+` variables of the environment say, or the program gives a TracerProvider (`+"`worker.Tracers`, or `runtime.Options`"+`).

| span | kind | one for each | attributes |
|---|---|---|---|
| `+"`%[1]s TOPIC`"+` | consumer | attempt | %[3]s, messaging.consumer.group.name, messaging.destination.partition.id, %[5]s, %[6]s |
| `+"`%[2]s TOPIC`"+` | producer | output or dead letter | %[3]s |

with %[4]s on both, and `+"`error.type`"+` on what failed. Names follow OpenTelemetry's messaging conventions. The text of an error is in no span: it may quote a message.

The parent of an attempt is what the message carries in `+"`traceparent`, `tracestate` and `baggage`"+`, so all attempts of a message have the same; one that carries nothing begins a trace. An output carries the span of its own sending. A dead letter keeps the headers that were received.
`, telemetry.OperationProcess, telemetry.OperationSend,
		"messaging.operation.name, messaging.operation.type, messaging.system, messaging.destination.name, messaging.message.id, messaging.message.body.size",
		"`"+telemetry.SpanConsumer+"`", telemetry.SpanAttempt, telemetry.SpanOutcome)
	return b.String()
}

// TestMetricsPage holds the page against the table, and both against what
// /metrics serves.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile(metricsPage, []byte(page()), 0o644))
	}
	onPage, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	require.Equal(t, page(), string(onPage), "go test ./runtime/worker -run TestMetricsPage -update")

	synctest.Test(t, func(t *testing.T) {
		w, err := worker.New(builtin.All(), yaml("broker: memory://x\nstore: memory\nconsumers: {c: {topic: in, handler: work, dedup: {}}}"),
			worker.Handle("work", nothing))
		require.NoError(t, err)
		publish(t, w, message.NewMessage("1", nil))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Minute)
		served := get(w.Handler(), "/metrics").Body.String()
		stop()
		require.NoError(t, <-ended)
		var inPage, inScrape []string
		for _, m := range regexp.MustCompile("(?m)^\\| `(leat_[a-z_]+)` \\| ([a-z]+) \\| (.+?) \\|").FindAllStringSubmatch(string(onPage), -1) {
			labels := regexp.MustCompile("[a-z_]+").FindAllString(m[3], -1)
			slices.Sort(labels)
			inPage = append(inPage, m[1]+" "+m[2]+" "+strings.Join(labels, ","))
		}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (leat_[a-z_]+) ([a-z]+)\n(?:leat_[a-z_]+?(?:_bucket)?(?:\{(.*)\})? .*)$`).FindAllStringSubmatch(served, -1) {
			var labels []string
			for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[3], -1) {
				if l[1] != "le" {
					labels = append(labels, l[1])
				}
			}
			slices.Sort(labels)
			inScrape = append(inScrape, m[1]+" "+m[2]+" "+strings.Join(labels, ","))
		}
		slices.Sort(inPage)
		slices.Sort(inScrape)
		require.Len(t, inPage, len(telemetry.Metrics()))
		require.Equal(t, inPage, inScrape)
		require.NotContains(t, served, "otel_scope")
		require.NotContains(t, served, "target_info")
		require.Contains(t, served, "go_goroutines")
	})
}
