package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// announcer says what a worker is when it starts, and what it did when it
// ends: as text where people read along, else as log records.
type announcer struct {
	text io.Writer // nil: log
	log  *slog.Logger
}

func (a announcer) start(ctx context.Context, w *Worker) {
	for _, p := range w.warnings {
		a.log.WarnContext(ctx, "configuration", "problem", p.Message, "file", p.File, "line", p.Line)
	}
	files := w.config.Files
	if len(files) == 0 && len(w.config.Data) == 0 {
		files = []string{config.DefaultFile}
	}
	brokers := w.brokerNames()
	if a.text == nil {
		a.log.InfoContext(ctx, "worker starting", "version", version(), "name", w.cfg.Name, "files", files,
			"brokers", brokers, "instance", w.instance.ID, "http", w.url)
		for i := range w.cfg.Consumers {
			c := &w.cfg.Consumers[i]
			a.log.InfoContext(ctx, "consumer configured", "consumer", c.Name, "topics", c.Topics, "group", c.Group,
				"handler", c.Handler.Kind, "limits", limits(c), "dead_letter", deadLetter(c))
		}
		return
	}
	_, _ = fmt.Fprintf(a.text, "%s, leat %s\n", w.cfg.Name, version())
	t := tabwriter.NewWriter(a.text, 0, 0, 2, ' ', 0)
	line := func(left, right string) { _, _ = fmt.Fprintf(t, "  %s\t%s\n", left, right) }
	line("files", strings.Join(files, ", "))
	line("broker", strings.Join(brokers, ", "))
	line("instance", w.instance.ID)
	if w.url != "" {
		line("http", w.url+" /livez /readyz /statusz /metrics")
	}
	for i := range w.cfg.Consumers {
		c := &w.cfg.Consumers[i]
		line(c.Name, fmt.Sprintf("%s → %s", strings.Join(c.Topics, ", "), c.Handler.Kind))
		line("", "group "+c.Group)
		line("", limits(c))
		line("", "dead letter "+deadLetter(c))
	}
	_ = t.Flush()
}

// brokerNames is the main broker, and the others by name, without credentials.
func (w *Worker) brokerNames() []string {
	var out []string
	if !w.cfg.Broker.IsZero() {
		out = append(out, w.cfg.Broker.String())
	}
	for _, name := range slices.Sorted(maps.Keys(w.cfg.Brokers)) {
		out = append(out, name+" = "+w.cfg.Brokers[name].String())
	}
	return out
}

// deadLetter is the name of the consumer's one dead letter, or the pattern of several.
func deadLetter(c *config.Consumer) string {
	if name := c.DeadLetter.Topic(c.Topics[0], c.Group); name != "" && len(c.Topics) == 1 {
		return name
	}
	return string(c.DeadLetter)
}

func limits(c *config.Consumer) string {
	attempts := strconv.Itoa(c.Retry.Attempts)
	if c.Retry.Attempts == config.Unlimited {
		attempts = "unlimited"
	}
	parts := []string{
		fmt.Sprintf("%d at once", c.Concurrency), fmt.Sprintf("prefetch %d, %s", c.Prefetch, c.PrefetchBytes),
		"timeout " + c.Timeout.String(), "attempts " + attempts,
	}
	if by := c.OrderedBy.String(); by != "" {
		parts = append(parts, "ordered by "+by)
	}
	if c.Dedup != nil {
		parts = append(parts, fmt.Sprintf("dedup by %s for %s", c.Dedup.Key, c.Dedup.Window))
	}
	return strings.Join(parts, ", ")
}

func (a announcer) end(ctx context.Context, w *Worker, took time.Duration) {
	took = took.Round(time.Millisecond)
	if a.text == nil {
		for _, s := range w.router.Status() {
			attrs := []slog.Attr{slog.String("consumer", s.Consumer), slog.Duration("took", took)}
			eachOutcome(s, func(name string, n int64) { attrs = append(attrs, slog.Int64(name, n)) })
			a.log.LogAttrs(ctx, slog.LevelInfo, "consumer stopped", attrs...)
		}
		return
	}
	t := tabwriter.NewWriter(a.text, 0, 0, 2, ' ', 0)
	for _, s := range w.router.Status() {
		var did []string
		eachOutcome(s, func(name string, n int64) { did = append(did, fmt.Sprintf("%s %d", name, n)) })
		if len(did) == 0 {
			did = []string{"nothing came"}
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\n", s.Consumer, strings.Join(did, ", "))
	}
	_, _ = fmt.Fprintf(t, "in\t%s\n", took)
	_ = t.Flush()
}

// eachOutcome calls fn for every outcome there was.
func eachOutcome(s runtime.Status, fn func(name string, n int64)) {
	for o := transport.Handled; o <= transport.Interrupted; o++ {
		if n := s.Count(o); n > 0 {
			fn(o.String(), n)
		}
	}
}
