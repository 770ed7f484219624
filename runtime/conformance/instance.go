package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// instance is one worker as far as the engine goes: a router on a connection
// of its own.
type instance struct {
	*rig
	name   string
	tr     transport.Transport
	router *runtime.Router
	stop   context.CancelFunc // nil while it does not run
	ended  chan error
}

// instance makes one that has no consumer yet. Wrap stands between the engine
// and the broker.
func (r *rig) instance(wrap ...func(transport.Transport) transport.Transport) *instance {
	r.Helper()
	in := &instance{rig: r, name: r.name("instance"), tr: r.connect()}
	for _, w := range wrap {
		in.tr = w(in.tr)
	}
	in.drainWithin(r.o.Patience)
	return in
}

// drainWithin has a stop wait for so long.
func (in *instance) drainWithin(d time.Duration) {
	in.router = runtime.NewRouter(runtime.Options{Instance: transport.Instance{ID: in.name}, DrainTimeout: d})
}

// consume adds a consumer with the standard chain.
func (in *instance) consume(name, topic, group string, h message.HandlerFunc, change ...func(*transport.Policy)) {
	in.Helper()
	require.NoError(in, in.router.Consume(name, in.tr, topic, h, in.policy(name, group, change...)))
}

// run starts a single consumer.
func (in *instance) run(topic, group string, h message.HandlerFunc, change ...func(*transport.Policy)) *instance {
	in.Helper()
	in.consume("c", topic, group, h, change...)
	in.start()
	return in
}

// policy is one that tries soon and five times.
func (r *rig) policy(name, group string, change ...func(*transport.Policy)) transport.Policy {
	r.Helper()
	p := transport.Policy{Group: group, Timeout: 2 * r.o.Patience, Retry: r.retry(5)}
	for _, c := range change {
		c(&p)
	}
	if r.o.spoil != nil {
		r.o.spoil(&p)
	}
	p = p.Defaults(name, r.caps)
	p.Middleware = middleware.Default(p)
	return p
}

// retry is a policy of short waits.
func (r *rig) retry(attempts int) *transport.RetryPolicy {
	return r.backoff(transport.Backoff{Attempts: attempts, InitialInterval: 10 * time.Millisecond, MaxInterval: 40 * time.Millisecond, Jitter: -1})
}

func (r *rig) backoff(b transport.Backoff) *transport.RetryPolicy {
	r.Helper()
	p, err := transport.NewRetryPolicy(b)
	require.NoError(r, err)
	return p
}

// attempts sets how often a message is tried.
func (r *rig) attempts(n int) func(*transport.Policy) {
	retry := r.retry(n)
	return func(p *transport.Policy) { p.Retry = retry }
}

// limits sets concurrency and prefetch.
func limits(concurrency, prefetch int) func(*transport.Policy) {
	return func(p *transport.Policy) { p.Concurrency, p.Prefetch = concurrency, prefetch }
}

// byKey asks for the order of keys, and for retries that keep it.
func byKey(p *transport.Policy) { p.Order, p.RetryOrder = transport.OrderKey, transport.RetryKeep }

// start runs the router and waits until it is ready.
func (in *instance) start() {
	in.Helper()
	in.launch()
	in.ready()
}

// launch runs the router. It stops with the case.
func (in *instance) launch() {
	in.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(in.Context()))
	in.stop, in.ended = stop, make(chan error, 1)
	go func() { in.ended <- in.router.Run(ctx) }()
	in.Cleanup(func() {
		for _, g := range in.gates { // of a case that has failed
			g.open()
		}
		if in.stop == nil {
			return
		}
		if err := in.drain(); err != nil && !errors.Is(err, runtime.ErrDrainTimeout) { // of a case that has failed
			in.Errorf("router: %v", err)
		}
	})
}

// ready waits until the router is.
func (in *instance) ready() {
	in.Helper()
	limit, cancel := in.within()
	defer cancel()
	select {
	case <-in.router.Ready():
	case err := <-in.ended:
		in.stop()
		in.stop = nil
		require.FailNow(in, "the router has ended before it was ready", "%v", err)
	case <-limit.Done():
		require.FailNow(in, "the router is not ready in time", "%+v", in.router.Status())
	}
}

// drain stops the router as SIGTERM does, and waits for it.
func (in *instance) drain() error {
	in.Helper()
	in.stop()
	in.stop = nil
	ctx, cancel := in.within()
	defer cancel()
	select {
	case err := <-in.ended:
		return err
	case <-ctx.Done():
		require.FailNow(in, "the router does not stop", "%+v", in.router.Status())
		return nil
	}
}

// stopped is a drain that must be clean.
func (in *instance) stopped() {
	in.Helper()
	require.NoError(in, in.drain(), "drain")
}

// status is that of the first consumer.
func (in *instance) status() runtime.Status { return in.router.Status()[0] }

func (in *instance) count(o transport.Outcome) int { return int(in.status().Count(o)) }

// await waits until the first consumer's status is so.
func (in *instance) await(what string, so func(runtime.Status) bool) {
	in.Helper()
	in.eventually(what, func() bool { return so(in.status()) }, func() any { return in.router.Status() })
}

// awaitCounts waits until an outcome has come n times and nothing is in
// flight any more.
func (in *instance) awaitCounts(o transport.Outcome, n int) {
	in.Helper()
	in.await(o.String(), func(s runtime.Status) bool { return int(s.Count(o)) >= n && s.InFlight == 0 })
}

// counted checks how often each outcome has come; what is not named has not.
func (in *instance) counted(want map[transport.Outcome]int) {
	in.Helper()
	got := map[transport.Outcome]int{}
	for o := transport.Handled; o <= transport.Interrupted; o++ {
		if n := in.count(o); n > 0 {
			got[o] = n
		}
	}
	require.Equal(in, want, got, "outcomes")
}
