package runtime

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"

	"github.com/leat-io/leat/runtime/telemetry"
	"github.com/leat-io/leat/runtime/transport"
)

// states is every State, for the metric that has a series for each.
var states = [...]State{
	StateStarting, StateRunning, StateHeld, StateBlocked, StateReconnecting, StateDraining, StateStopped, StateFailed,
}

// observe makes what the options ask for. What the status knows is read from
// it when somebody collects; only the time of an attempt is taken while it runs.
func (r *Router) observe() error {
	tracer := telemetry.NewTracer(r.opts.TracerProvider, r.opts.Propagator)
	for _, c := range r.consumers {
		c.tracer = tracer
	}
	if r.opts.MeterProvider == nil {
		return nil
	}
	meter := r.opts.MeterProvider.Meter(telemetry.Scope)
	for _, c := range r.consumers {
		var err error
		if c.durations, err = telemetry.NewDurations(meter, c.name); err != nil {
			return err
		}
	}
	var b backlog
	return telemetry.Observe(meter, func(ctx context.Context, o telemetry.Observer) {
		o.Flag(telemetry.Ready, r.isReady() && !r.Draining())
		for _, c := range r.consumers {
			c.collect(o)
		}
		for _, d := range b.read(ctx, r.consumers) {
			d.collect(o)
		}
	})
}

// collect gives what the status of a consumer knows.
func (c *consumer) collect(o telemetry.Observer) {
	s := c.snapshot()
	name := attribute.String(telemetry.AttrConsumer, c.name)
	o.Flag(telemetry.BrokerConnected, s.Connected, name)
	for _, st := range states {
		o.Flag(telemetry.ConsumerState, s.State == st, name, attribute.String(telemetry.AttrState, string(st)))
	}
	for by, counts := range map[string]struct {
		metric string
		of     map[string]int64
	}{
		telemetry.AttrOutcome: {telemetry.Outcomes, s.Outcomes},
		telemetry.AttrReason:  {telemetry.DeadLetters, s.Dead},
		telemetry.AttrStep:    {telemetry.Repeats, s.Repeats},
	} {
		for value, n := range counts.of {
			o.Count(counts.metric, n, name, attribute.String(by, value))
		}
	}
	o.Count(telemetry.Deliveries, s.Received, name)
	o.Count(telemetry.Outputs, s.Outputs, name)
	o.Flag(telemetry.DrainTimeouts, s.DrainTimedOut, name)
	o.Count(telemetry.Running, int64(s.Running), name)
	o.Count(telemetry.Concurrency, int64(c.p.Concurrency), name)
	o.Count(telemetry.InFlight, int64(s.InFlight), name)
	o.Count(telemetry.Prefetch, int64(c.p.Prefetch), name)
	o.Count(telemetry.InFlightSize, s.InFlightBytes, name)
	o.Count(telemetry.PrefetchSize, c.p.PrefetchBytes, name)
	o.Count(telemetry.Parked, int64(s.Parked), name)
	o.Count(telemetry.HeldByOrder, int64(s.HeldByOrder), name)
	o.Seconds(telemetry.OldestInFlight, s.Oldest, name)
}

// Bounds on asking brokers what waits: a scrape may be as frequent as it likes.
const (
	backlogEvery   = 5 * time.Second
	backlogTimeout = 2 * time.Second
)

// backlog is what waits at the brokers, as of the last time they were asked.
type backlog struct {
	mu     sync.Mutex
	asked  time.Time
	depths []depth
}

type depth struct {
	transport.Depth

	consumer, topic string
}

// read asks all brokers at once, if the last time is long enough ago. The mutex
// is held meanwhile: all who collect want the same.
func (b *backlog) read(ctx context.Context, consumers []*consumer) []depth {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asked.IsZero() && time.Since(b.asked) < backlogEvery {
		return b.depths
	}
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	var asking sync.WaitGroup
	answers := make(chan depth)
	for _, c := range consumers {
		if !c.caps.Depth || !c.hasStarted() {
			continue // before that, there may be no such group
		}
		for _, topic := range c.topics {
			asking.Go(func() {
				if d, err := c.t.Depth(ctx, topic, c.p.Group); err == nil {
					answers <- depth{d, c.name, topic}
				}
			})
		}
	}
	go func() { asking.Wait(); close(answers) }()
	b.depths = nil
	for d := range answers {
		b.depths = append(b.depths, d)
	}
	b.asked = time.Now()
	return b.depths
}

func (d depth) collect(o telemetry.Observer) {
	name, topic := attribute.String(telemetry.AttrConsumer, d.consumer), attribute.String(telemetry.AttrTopic, d.topic)
	state := func(s string) attribute.KeyValue { return attribute.String(telemetry.AttrState, s) }
	o.Count(telemetry.Backlog, d.Ready, name, topic, state("ready"))
	o.Count(telemetry.Backlog, d.Delayed, name, topic, state("delayed"))
	o.Count(telemetry.Backlog, d.Held, name, topic, state("held"))
	var age time.Duration
	if !d.Oldest.IsZero() {
		age = max(0, time.Since(d.Oldest))
	}
	o.Seconds(telemetry.BacklogOldest, age, name, topic)
}

func (c *consumer) hasStarted() bool {
	select {
	case <-c.started:
		return true
	default:
		return false
	}
}

// beginSpan has the attempt of w run within a span, if there are spans.
func (c *consumer) beginSpan(w *worker, msg *message.Message) {
	if c.tracer == nil {
		return
	}
	d := w.it.d
	w.trace = c.tracer.Process(msg.Context(), telemetry.Message{
		System: telemetry.System(c.t.Kind()), Topic: d.Topic, ID: d.ID, Size: len(d.Payload),
		Consumer: c.name, Group: c.p.Group, Partition: d.Partition, Attempt: w.a.Number(),
	}, msg.Metadata)
	msg.SetContext(w.trace)
}

// observeAttempt tells of an attempt that is judged. A span that outputs or a
// dead letter will still have children in stays open for [consumer.confirm] to end.
func (c *consumer) observeAttempt(w *worker) {
	if c.durations != nil {
		ctx := w.trace
		if ctx == nil {
			ctx = c.base
		}
		c.durations.Record(ctx, time.Duration(c.sinceEpoch()-w.since.Load()))
	}
	w.since.Store(0)
	if w.trace != nil {
		w.r.trace, w.trace = w.trace, nil //nolint:fatcontext // handed on, not nested
		if !w.r.slow() {
			c.endSpan(&w.r)
		}
	}
}

// endSpan ends the span of an attempt with its outcome.
func (c *consumer) endSpan(r *result) {
	if r.trace == nil {
		return
	}
	class := ""
	if r.outcome == transport.Retried || r.outcome == transport.Dead {
		class = r.class
	}
	telemetry.End(r.trace, class, attribute.String(telemetry.SpanOutcome, r.outcome.String()))
}

// beginSends begins a span for each output. The outputs carry them, in
// metadata of their own: the handler may still hold what it gave us.
func (c *consumer) beginSends(r *result, topic string, msgs []*message.Message) []context.Context {
	if r.trace == nil {
		return nil
	}
	t := c.t
	if c.p.Output != nil {
		t = c.p.Output
	}
	var spans []context.Context
	for _, m := range msgs {
		span := c.beginSend(r.trace, t, topic, m)
		m.Metadata = maps.Clone(m.Metadata)
		c.tracer.Inject(span[0], m.Metadata)
		spans = append(spans, span...)
	}
	return spans
}

// beginSend begins the span of publishing m, and leaves m as it is.
func (c *consumer) beginSend(within context.Context, t transport.Transport, topic string, m *message.Message) []context.Context {
	if within == nil {
		return nil
	}
	return []context.Context{c.tracer.Send(within, telemetry.Message{
		System: telemetry.System(t.Kind()), Topic: topic, ID: m.UUID, Size: len(m.Payload), Consumer: c.name,
	})}
}

func endSends(spans []context.Context, err error) {
	for _, ctx := range spans {
		telemetry.End(ctx, transport.Class(err))
	}
}
