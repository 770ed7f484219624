package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/telemetry"
	"github.com/leat-io/leat/runtime/transport"
)

// Bounds on what the engine waits for by itself.
const (
	closeTimeout  = 5 * time.Second        // to leave a broker
	cancelGrace   = time.Second            // for handlers to return once their contexts are cancelled
	firstReopen   = 200 * time.Millisecond // between tries to reach a broker
	longestReopen = 10 * time.Second
)

// consumer is one entry under consumers: its session with the broker, its
// queue and its workers. mu guards everything that is not set at the start.
type consumer struct {
	name   string
	t      transport.Transport
	caps   transport.Capabilities
	topics []string
	dead   map[string]string // dead-letter topic by topic
	h      message.HandlerFunc
	p      transport.Policy
	router *Router
	log    *slog.Logger
	noisy  sampler

	tracer    *telemetry.Tracer    // nil: no spans
	durations *telemetry.Durations // nil: attempts are not timed

	chain   message.HandlerFunc
	own     atomic.Pointer[outlet] // dead letters
	out     atomic.Pointer[outlet] // outputs
	started chan struct{}          // closed at the first complete start

	settledByHand, keyless, saying atomic.Bool // warned of; and a log is being written
	epoch                          time.Time   // attempts are timed from here; none begins at 0

	base    context.Context //nolint:containedctx // parent of all deliveries of this run
	abandon context.CancelCauseFunc

	mu       sync.Mutex
	q        *queue
	session  *session // nil while there is no connection
	workers  int
	idle     []*worker // the last to fall asleep is woken first
	pool     map[*worker]struct{}
	clock    clock
	waking   bool          // one worker was woken and has not taken anything yet
	hungry   bool          // the receiver waits for credit
	fed      chan struct{} // tells it
	need     int64         // bytes of the next message, if it was too large
	over     bool          // too much is held by order
	draining bool
	quiet    chan struct{}      // closed when draining and nothing runs any more
	unsent   map[string]unsent  // acks that a lost connection did not take
	status   Status             // counters and what happened last
	troubles map[string]trouble // what keeps going wrong, by what it concerns
}

func newConsumer(r *Router, name string, t transport.Transport, topic string, h message.HandlerFunc, p transport.Policy) (*consumer, error) {
	caps := t.Capabilities()
	p = p.Defaults(name, caps)
	topics := append([]string{topic}, p.Topics...)
	if err := transport.CheckName("group", p.Group); err != nil {
		return nil, err
	}
	if err := checkWords(p); err != nil {
		return nil, err
	}
	switch {
	case h == nil:
		return nil, errors.New("no handler")
	case p.Middleware == nil && (p.Timeout > 0 || p.Dedup != nil || len(p.Wrap)+len(p.Use) > 0):
		return nil, errors.New("the policy has links, and an empty Middleware: set it to middleware.Default(policy)")
	case p.Concurrency < 1 || p.PrefetchBytes < 1 || p.Span < 1:
		return nil, errors.New("concurrency, prefetch_bytes and span must be at least 1")
	case p.Prefetch < p.Concurrency:
		return nil, fmt.Errorf("prefetch %d is less than concurrency %d: some slots could never be used", p.Prefetch, p.Concurrency)
	}
	dead := make(map[string]string, len(topics))
	for i, tp := range topics {
		if err := transport.CheckName("topic", tp); err != nil {
			return nil, err
		}
		if slices.Contains(topics[:i], tp) {
			return nil, fmt.Errorf("topic %q is named twice", tp)
		}
		if p.DeadLetter.Mode == transport.DeadToTopic {
			d, err := transport.DeadTopic(p.DeadLetter.Topic, tp, p.Group)
			if err != nil {
				return nil, err
			}
			dead[tp] = d
		}
	}
	for _, tp := range topics {
		if slices.Contains(topics, dead[tp]) {
			return nil, fmt.Errorf("dead letter %q is a topic of this consumer: its failures would come back for ever", dead[tp])
		}
	}
	return &consumer{
		name: name, t: t, caps: caps, topics: topics, dead: dead, h: h, p: p, router: r, epoch: time.Now().Add(-1),
		log:     r.opts.Log.With("consumer", name),
		started: make(chan struct{}), fed: make(chan struct{}, 1), quiet: make(chan struct{}),
		q: newQueue(p, caps.StableCoordinates), pool: make(map[*worker]struct{}),
		status:   newStatus(name, topics, p),
		troubles: make(map[string]trouble),
	}, nil
}

// checkWords refuses words that a policy does not know.
func checkWords(p transport.Policy) error {
	for _, w := range []struct {
		what, is string
		known    []string
	}{
		{"order", string(p.Order), []string{string(transport.OrderKey), string(transport.OrderPartition), string(transport.OrderNone)}},
		{"retry order", string(p.RetryOrder), []string{string(transport.RetryKeep), string(transport.RetryOvertake)}},
		{"dead letter", string(p.DeadLetter.Mode), []string{string(transport.DeadToTopic), string(transport.DeadDrop), string(transport.DeadBlock)}},
		{"start", string(p.Start), []string{string(transport.StartEarliest), string(transport.StartLatest)}},
	} {
		if !slices.Contains(w.known, w.is) {
			return fmt.Errorf("%s %q: there is %s", w.what, w.is, strings.Join(w.known, ", "))
		}
	}
	return nil
}

// sharesGroup names a topic that both read in the same group.
func (c *consumer) sharesGroup(o *consumer) string {
	if c.t != o.t || c.p.Group != o.p.Group {
		return ""
	}
	for _, tp := range c.topics {
		if slices.Contains(o.topics, tp) {
			return tp
		}
	}
	return ""
}

// compose makes the chain, once.
func (c *consumer) compose(inner []message.HandlerMiddleware) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("consumer %q: a middleware panics when it is put around the handler: %v", c.name, v)
		}
	}()
	c.chain = c.h
	for _, links := range [][]message.HandlerMiddleware{inner, c.p.Middleware} {
		for _, link := range slices.Backward(links) {
			if c.chain = link(c.chain); c.chain == nil {
				return fmt.Errorf("consumer %q: a middleware returns no handler", c.name)
			}
		}
	}
	return nil
}

// supervise keeps a session with the broker until ctx ends, then drains. It
// returns early only with an error that was refused before the router was
// ready, or with [transport.ErrFenced].
func (c *consumer) supervise(ctx context.Context) error {
	base, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	c.base, c.abandon = base, abandon
	defer abandon(transport.ErrShutdown)
	for tries := 0; ; {
		began := time.Now()
		err := c.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return c.finish()
		case transport.Refused(err) && !c.router.isReady(), errors.Is(err, transport.ErrFenced):
			c.abandon(transport.ErrShutdown)
			c.drain(c.base)
			c.setState(StateFailed, err)
			return fmt.Errorf("consumer %q: %w", c.name, err)
		}
		if tries++; time.Since(began) > longestReopen {
			tries = 1
		}
		wait := reopenWait(tries)
		c.setState(StateReconnecting, err)
		c.log.WarnContext(ctx, "consumer has no broker", "error", brief(err), "next_try", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return c.finish()
		}
	}
}

// reopenWait grows to longestReopen; half of each wait is random, so that the
// members of a group do not come back all at once.
func reopenWait(tries int) time.Duration {
	d := firstReopen << min(tries-1, 10)
	d = min(d, longestReopen)
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load
}

// connect runs one session: it returns when the broker is lost or ctx ends.
func (c *consumer) connect(ctx context.Context) error {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	c.setState(StateRunning, nil)
	select {
	case <-c.started:
		c.log.InfoContext(ctx, "consumer has its broker again")
	default:
		c.log.InfoContext(ctx, "consumer started", "group", c.p.Group, "topics", c.topics)
		close(c.started)
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { c.settleLoop(s) })
	helpers.Go(func() { c.flowLoop(s) })
	err = c.receiveLoop(ctx, s)
	if err == nil {
		c.drain(ctx)
	}
	c.endSession(s, err != nil)
	helpers.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if cerr := s.c.Close(closing); cerr != nil && err == nil {
		c.log.WarnContext(ctx, "consumer did not leave its broker cleanly", "error", cerr)
	}
	return err
}

// open declares what the consumer needs and joins its group. Nothing is taken
// in before the dead letter is known to be there.
func (c *consumer) open(ctx context.Context) (*session, error) {
	own, err := c.router.outletOf(ctx, c.t)
	if err != nil {
		return nil, err
	}
	out := own
	if c.p.Output != nil {
		if out, err = c.router.outletOf(ctx, c.p.Output); err != nil {
			return nil, err
		}
	}
	c.own.Store(own)
	c.out.Store(out)
	mode := c.router.opts.Topology
	var ds []transport.Declaration
	for _, tp := range c.topics {
		ds = append(ds, transport.Declaration{Topic: tp, Group: c.p.Group, Start: c.p.Start})
		if d := c.dead[tp]; d != "" {
			ds = append(ds, transport.Declaration{Topic: d, DeadLetter: true})
		}
	}
	if err := c.t.Declare(ctx, mode, ds...); err != nil {
		return nil, fmt.Errorf("declare: %w", err)
	}
	if c.p.PublishTo != "" {
		t := c.t
		if c.p.Output != nil {
			t = c.p.Output
		}
		if err := t.Declare(ctx, mode, transport.Declaration{Topic: c.p.PublishTo}); err != nil {
			return nil, fmt.Errorf("declare publish_to: %w", err)
		}
	}
	tc, err := c.t.OpenConsumer(ctx, transport.ConsumerConfig{
		Name: c.name, Topics: c.topics, Group: c.p.Group, Start: c.p.Start, Topology: mode,
		Order: c.p.Order, Instance: c.router.opts.Instance,
		Prefetch: c.p.Prefetch, PrefetchBytes: c.p.PrefetchBytes, Span: c.p.Span,
		Base: c.base, Log: c.log,
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	s := newSession(ctx, tc, c)
	c.mu.Lock()
	c.session, c.need, c.over = s, 0, false
	c.mu.Unlock()
	return s, nil
}

// drain starts nothing more, gives back what has not started, and waits for
// what runs: with live contexts up to the drain timeout, then with cancelled
// ones for a moment.
func (c *consumer) drain(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.status.State, c.status.Why, c.status.Since = StateDraining, "", time.Now()
	if !c.p.AckOnReceive {
		for _, sp := range c.q.spells {
			c.giveBack(c.q.withdraw(sp, false))
		}
	}
	c.checkQuiet()
	c.wakeIdle()
	c.mu.Unlock()

	timeout := time.NewTimer(c.router.opts.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-c.quiet:
		return
	case <-c.base.Done():
	case <-timeout.C:
		c.log.ErrorContext(ctx, "drain timeout: cancelling what still runs")
		c.abandon(transport.ErrShutdown)
	}
	if c.p.AckOnReceive {
		c.mu.Lock()
		for _, sp := range c.q.spells {
			c.lose(c.q.withdraw(sp, false))
		}
		c.checkQuiet()
		c.wakeIdle()
		c.mu.Unlock()
	}
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-c.quiet:
	case <-grace.C:
	}
	c.mu.Lock()
	c.status.Abandoned = c.q.running + c.q.closing
	c.status.DrainTimedOut = true
	c.mu.Unlock()
}

// finish ends supervision after a drain.
func (c *consumer) finish() error {
	c.mu.Lock()
	drained := c.draining
	c.mu.Unlock()
	if !drained { // there was no session to drain, but handlers of a lost one may run
		c.drain(c.base)
	}
	c.setState(StateStopped, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.DrainTimedOut {
		return fmt.Errorf("consumer %q: %w", c.name, ErrDrainTimeout)
	}
	return nil
}

// checkQuiet tells the drain that nothing runs any more. mu is held.
func (c *consumer) checkQuiet() {
	if c.draining && c.q.running == 0 && c.q.closing == 0 && (!c.p.AckOnReceive || c.q.count == 0) {
		select {
		case <-c.quiet:
		default:
			close(c.quiet)
			c.wakeIdle()
		}
	}
}
