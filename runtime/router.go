package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/leat-io/leat/runtime/transport"
)

// Options configure a [Router]. The zero value works.
type Options struct {
	// Instance names this process to brokers. Default: not set, and an empty id.
	Instance transport.Instance
	// Topology is what consumers may declare. Default declare.
	Topology transport.Topology
	// DrainTimeout bounds how long a stop waits for running attempts before
	// their contexts are cancelled. Default 25s.
	DrainTimeout time.Duration
	// Log gets state changes, dead letters and, thinned out, failures. Default: discarded.
	Log *slog.Logger

	// MeterProvider gets the metrics of package telemetry. Default: none, and
	// attempts are not timed.
	MeterProvider metric.MeterProvider
	// TracerProvider gets a span for each attempt and for each message
	// published. Default: none, and trace context in headers is left alone.
	TracerProvider trace.TracerProvider
	// Propagator reads and writes trace context in headers, where there is a
	// TracerProvider. Default: W3C trace context and baggage.
	Propagator propagation.TextMapPropagator
}

// Router runs consumers. It is made by [NewRouter], filled by [Router.Consume]
// and [Router.Use], and run once.
type Router struct {
	opts Options

	mu        sync.Mutex
	consumers []*consumer
	use       []message.HandlerMiddleware
	outlets   map[transport.Transport]*outlet
	ran       bool
	draining  bool

	ready chan struct{} // closed when every consumer has started once
	pulse pulse
}

// NewRouter makes an empty router.
func NewRouter(o Options) *Router {
	if o.Topology == "" {
		o.Topology = transport.TopologyDeclare
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 25 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Router{opts: o, outlets: make(map[transport.Transport]*outlet), ready: make(chan struct{})}
}

// Use adds links around every handler, inside each consumer's own chain. It
// has no effect on a router that runs.
func (r *Router) Use(links ...message.HandlerMiddleware) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.use = append(r.use, links...)
}

// Consume adds a consumer of topic (and of p.Topics) in p.Group. h may be any
// Watermill handler; what it returns is published to p.PublishTo.
//
// It fails on a name that is taken or not legal, on a (transport, topic,
// group) that another consumer reads, and on a policy that cannot be kept.
func (r *Router) Consume(name string, t transport.Transport, topic string, h message.HandlerFunc, p transport.Policy) error {
	c, err := newConsumer(r, name, t, topic, h, p)
	if err != nil {
		return fmt.Errorf("consumer %q: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ran {
		return fmt.Errorf("consumer %q: the router was run already", name)
	}
	for _, o := range r.consumers {
		if o.name == name {
			return fmt.Errorf("consumer %q: the name is taken", name)
		}
		if shared := o.sharesGroup(c); shared != "" {
			return fmt.Errorf("consumer %q: consumer %q reads topic %q in group %q too; give one of them another group", name, o.name, shared, c.p.Group)
		}
	}
	r.consumers = append(r.consumers, c)
	return nil
}

// Run starts all consumers and returns when they have drained after ctx ended.
//
// A broker that cannot be reached is tried for ever. An error that a broker
// will go on giving ([transport.Refused]) ends Run only if it comes before
// every consumer has started once; later it keeps only its own consumer from
// running. [transport.ErrFenced] ends Run whenever it comes. After a stop that was slower than the drain timeout, the error is
// [ErrDrainTimeout].
func (r *Router) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.ran {
		r.mu.Unlock()
		return errors.New("router: Run was called before")
	}
	r.ran = true
	consumers := r.consumers
	use := r.use
	r.mu.Unlock()
	for _, c := range consumers {
		if err := c.compose(use); err != nil {
			return err
		}
	}
	if err := r.observe(); err != nil {
		return fmt.Errorf("router: %w", err)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(consumers))
	var wg sync.WaitGroup
	for i, c := range consumers {
		wg.Go(func() {
			if errs[i] = c.supervise(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	go func() {
		for _, c := range consumers {
			select {
			case <-c.started:
			case <-ctx.Done():
				return
			}
		}
		r.opts.Log.InfoContext(ctx, "router ready", "consumers", len(consumers))
		close(r.ready)
	}()
	if len(consumers) == 0 {
		<-ctx.Done()
	}
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		r.draining = true
		r.mu.Unlock()
	})
	wg.Wait()
	stop()
	return errors.Join(errors.Join(errs...), r.closeOutlets(ctx))
}

// ErrDrainTimeout is returned by [Router.Run] when attempts still ran at the
// end of the drain timeout. Their messages stay with the broker.
var ErrDrainTimeout = errors.New("drain timeout: attempts were still running")

// Ready is closed once every consumer has started. It stays so through later
// outages: readiness is latched.
func (r *Router) Ready() <-chan struct{} { return r.ready }

// Draining tells whether a stop has begun.
func (r *Router) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

func (r *Router) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// outletOf shares one producer of each transport between consumers.
func (r *Router) outletOf(ctx context.Context, t transport.Transport) (*outlet, error) {
	r.mu.Lock()
	o := r.outlets[t]
	r.mu.Unlock()
	if o != nil {
		return o, nil
	}
	p, err := t.OpenProducer(ctx)
	if err != nil {
		return nil, fmt.Errorf("producer of %s: %w", t.Kind(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o = r.outlets[t]; o == nil {
		o = newOutlet(p)
		r.outlets[t] = o
		return o, nil
	}
	return o, p.Close(ctx)
}

func (r *Router) closeOutlets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	r.mu.Lock()
	outlets := maps.Clone(r.outlets)
	r.mu.Unlock()
	var errs []error
	for t, o := range outlets {
		if err := o.producer.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("producer of %s: close: %w", t.Kind(), err))
		}
	}
	return errors.Join(errs...)
}
