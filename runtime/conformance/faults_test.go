package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/transporttest"
	"github.com/leat-io/leat/runtime/transport/transporttest/badtransport"
)

// within runs cases in virtual time, on a broker in memory that is broken in
// some way.
func within(t *testing.T, o memory.Options, f fault, names ...string) (report Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts := Options{
			Open: func(TB) Broker {
				b := memory.NewBroker(o)
				fragile := badtransport.Fragile(b)
				if f.broker != nil {
					f.broker(&fragile)
				}
				wrap := func(tr transport.Transport) transport.Transport { return tr }
				if f.transport != nil {
					wrap = f.transport()
				}
				return Broker{
					Transport: func(tb TB) transport.Transport { return wrap(fragile.Transport(tb)) },
					Restart:   fragile.Restart, Crash: fragile.Crash, Freeze: fragile.Freeze,
					Deny: fragile.Deny, Disconnect: fragile.Disconnect, Link: fragile.Link,
				}
			},
			Takeover: time.Second,
			Short:    true,
			Async:    o.Log,
		}
		if f.name != "" {
			opts.Patience = 10 * time.Second
		}
		if f.policy != nil {
			opts.spoil = f.policy()
		}
		report = Check(t.Context(), opts, names...)
		<-time.After(24 * time.Hour) // for what a fault has left running
	})
	return report
}

// TestEmulated: a broker that can do less is skipped for what it cannot do,
// and keeps the rest.
func TestEmulated(t *testing.T) {
	t.Parallel()
	log, queue := memory.Capabilities(), memory.Capabilities()
	log.ReleaseInOrder, log.DurableDelay, log.Attempts = false, false, transport.KeepProcess
	queue.KeyOrder, queue.Attempts, queue.StableCoordinates = transport.ScopeWorker, transport.KeepAfterDelay, false
	queue.ByteWindow, queue.ReleaseInOrder, queue.Depth = false, false, false
	for name, o := range map[string]memory.Options{
		"memory": {}, "log": {Log: true, Capabilities: &log}, "queue": {Capabilities: &queue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := within(t, o, fault{})
			t.Log(report)
			for _, res := range report {
				require.Empty(t, res.Failures, res.Case)
			}
		})
	}
}

// fault is something broken, and the cases that are there to find it.
type fault struct {
	name      string
	caught    []string
	transport func() func(transport.Transport) transport.Transport
	policy    func() func(*transport.Policy)
	broker    func(*transporttest.Broker)
}

// faults are what the suite is known to find: transports that break the
// contract, and what an engine would do that breaks a promise, as policies
// that have it do so.
func faults() []fault {
	all := []fault{
		{
			name: "order is not kept", caught: []string{"B1_key_order", "B2_order_with_retries", "B3_rebalanced", "E5_dead_letter_order"},
			policy: setting(func(p *transport.Policy) { p.Order = transport.OrderNone }),
		},
		{
			name: "retries are overtaken", caught: []string{"B2_order_with_retries"},
			policy: setting(func(p *transport.Policy) { p.RetryOrder, p.MaxPark = transport.RetryOvertake, time.Millisecond }),
		},
		{
			name: "more is taken than may be", caught: []string{"B5_prefetch"},
			policy: setting(func(p *transport.Policy) { p.Prefetch += 5 }),
		},
		{
			name: "more runs than may", caught: []string{"B5_prefetch"},
			policy: setting(func(p *transport.Policy) { p.Concurrency++ }),
		},
		{name: "consumers share their slots", caught: []string{"B6_fairness"}, policy: sharedSlots},
		{
			name: "nothing is tried again", caught: []string{"C1_attempts", "D1_never_early", "F2_fail_then_succeed", "SAME_outcome"},
			policy: retrying(transport.Backoff{Attempts: 1}),
		},
		{
			name: "attempts come early", caught: []string{"D1_never_early"},
			policy: retrying(transport.Backoff{Attempts: 4, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond}),
		},
		{
			name: "waits are not spread", caught: []string{"D8_herd"},
			policy: retrying(transport.Backoff{Attempts: 2, InitialInterval: 400 * time.Millisecond, Jitter: -1}),
		},
		{
			name: "what is dead is dropped", caught: []string{"C1_attempts", "C5_panic", "D6_permanent", "E1_complete", "E2_fields", "E3_dead_letter_away"},
			policy: setting(func(p *transport.Policy) { p.DeadLetter.Mode = transport.DeadDrop }),
		},
		{
			name: "acked when received", caught: []string{"D4_stop_in_backoff", "D5_shutdown_no_failure", "H3_ignores_context"},
			policy: setting(func(p *transport.Policy) { p.AckOnReceive = true }),
		},
		{name: "attempts share a message", caught: []string{"C8_mutation"}, policy: linking(sharedMessage)},
		{name: "errors lose their meaning", caught: []string{"D6_permanent"}, policy: using(plainErrors)},
		{
			name: "outputs are not sent", caught: []string{"C9_output_away"},
			policy: setting(func(p *transport.Policy) { p.Output = nowhere{} }),
		},
		{
			name: "duplicates are let through", caught: []string{"F1_race", "F7_id_reused", "F8_scope", "SAME_outcome"},
			policy: setting(func(p *transport.Policy) { p.Dedup = nil }),
		},
		{name: "arrival is taken for success", caught: []string{"F1_race", "F2_fail_then_succeed"}, policy: marksArrival},
		{name: "keys are not kept apart", caught: []string{"F8_scope"}, policy: oneScope},
		{name: "consumers fall together", caught: []string{"H6_one_breaks"}, transport: fallTogether},
		{name: "what is given back is lost", caught: []string{"D5_shutdown_no_failure", "H1_drain"}, transport: losesReleases},
	}
	for name, caught := range map[string][]string{
		"acks early":       {"D5_shutdown_no_failure", "H3_ignores_context"},
		"loses on close":   {"H3_ignores_context"},
		"forgets attempts": {"D4_stop_in_backoff"},
		"overtakes":        {"B1_key_order"},
		"hands out twice":  {"A6_each_once"},

		"loses one in a thousand": {"M7_contention"},

		"is out of the group when it does not receive": {"B4_paused_reader"},
		"waits in silence for what is lost":            {"I4_link_down"},
		"takes an outage for a refusal":                {"I9_down_at_start"},
		"is deaf after a freeze":                       {"I3_frozen"},
		"is deaf after a stall":                        {"I8_half_open"},
		"is deaf after a denial":                       {"I10_denied"},
		"is deaf after it ends connections":            {"P1_disconnects"},
		"is deaf when its link is slow":                {"I5_slow_link"},

		"ignores the limit":        {"B5_prefetch"},
		"ignores maxBytes":         {"B5_prefetch_bytes"},
		"leaves something running": {"H5_start_stop"},
	} {
		i := slices.IndexFunc(badtransport.All(), func(f badtransport.Fault) bool { return f.Name == name })
		all = append(all, fault{name: name, caught: caught, transport: badtransport.All()[i].New, broker: badtransport.All()[i].Broker})
	}
	return all
}

// TestFaultsAreCaught: each fault is found by the cases that are named for it.
func TestFaultsAreCaught(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			report := within(t, memory.Options{}, f, f.caught...)
			require.ElementsMatch(t, f.caught, report.Failed(), report)
		})
	}
}

// TestEveryCaseHasAFault: a case that nothing is known to fail may find nothing.
func TestEveryCaseHasAFault(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for _, f := range faults() {
		for _, name := range f.caught {
			caught[name] = true
		}
	}
	for _, c := range cases() {
		if len(c.needs) > 1 { // a case with processes, which nothing here can break
			continue
		}
		require.True(t, caught[c.name], "no fault is named for %s", c.name)
	}
}

// TestDurableNeedsAWorker: no broker that can be tried with processes is let
// off without a word.
func TestDurableNeedsAWorker(t *testing.T) {
	t.Parallel()
	c := memory.Capabilities()
	c.Durable = true
	o := Options{Open: func(TB) Broker {
		return Broker{Transport: func(TB) transport.Transport { return memory.NewBroker(memory.Options{Capabilities: &c}).Transport() }}
	}}
	require.Equal(t, []string{"N1_kill_loop"}, Check(t.Context(), o, "N1_kill_loop").Failed())
	o.Lacks = map[string]string{"Worker": "it is in memory", "Config": "it is in memory"}
	require.Contains(t, Check(t.Context(), o, "N1_kill_loop").Skipped()["N1_kill_loop"], "it is in memory")
}

func setting(change func(*transport.Policy)) func() func(*transport.Policy) {
	return func() func(*transport.Policy) { return change }
}

func retrying(b transport.Backoff) func() func(*transport.Policy) {
	return setting(func(p *transport.Policy) {
		retry, err := transport.NewRetryPolicy(b)
		if err != nil {
			panic(err)
		}
		p.Retry = retry
	})
}

// linking puts a link outside of the chain, using one inside.
func linking(link func() message.HandlerMiddleware) func() func(*transport.Policy) {
	return func() func(*transport.Policy) {
		l := link()
		return func(p *transport.Policy) { p.Wrap = append([]message.HandlerMiddleware{l}, p.Wrap...) }
	}
}

func using(link func() message.HandlerMiddleware) func() func(*transport.Policy) {
	return func() func(*transport.Policy) {
		l := link()
		return func(p *transport.Policy) { p.Use = append(p.Use, l) }
	}
}

func sharedSlots() func(*transport.Policy) {
	slots := make(chan struct{}, 8)
	return using(func() message.HandlerMiddleware {
		return func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				slots <- struct{}{}
				defer func() { <-slots }()
				return next(m)
			}
		}
	})()
}

func sharedMessage() message.HandlerMiddleware {
	var first *message.Message
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			if first == nil {
				first = m
			}
			first.SetContext(m.Context())
			return next(first)
		}
	}
}

func plainErrors() message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := next(m)
			if err != nil {
				err = errors.New(err.Error())
			}
			return out, err
		}
	}
}

// marksArrival takes every message for done that has come before.
func marksArrival() func(*transport.Policy) {
	var seen sync.Map
	return func(p *transport.Policy) {
		p.Dedup = func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				if _, before := seen.LoadOrStore(m.UUID, true); before {
					return nil, transport.Already
				}
				return next(m)
			}
		}
	}
}

func oneScope() func(*transport.Policy) {
	link, err := middleware.Dedup(middleware.DedupOptions{Store: middleware.NewMemoryDedup(1000), Scope: "all"})
	if err != nil {
		panic(err)
	}
	return func(p *transport.Policy) { p.Dedup = link }
}

// losesReleases acks what is given back.
func losesReleases() func(transport.Transport) transport.Transport {
	return func(tr transport.Transport) transport.Transport { return &losing{tr} }
}

type losing struct{ transport.Transport }

func (l *losing) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	c, err := l.Transport.OpenConsumer(ctx, cfg)
	return &losingConsumer{c}, err
}

type losingConsumer struct{ transport.Consumer }

func (c *losingConsumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	batch = slices.Clone(batch)
	for i := range batch {
		if batch[i].Verdict == transport.Release {
			batch[i].Verdict = transport.Ack
		}
	}
	return c.Consumer.Settle(ctx, batch)
}

// nowhere confirms what it does not send.
type nowhere struct{ transport.Transport }

func (nowhere) Kind() string { return "nowhere" }

func (nowhere) Declare(context.Context, transport.Topology, ...transport.Declaration) error {
	return nil
}

func (nowhere) OpenProducer(context.Context) (transport.Producer, error) { return nowhere{}, nil }

func (nowhere) Publish(context.Context, string, ...*message.Message) error { return nil }

func (nowhere) Close(context.Context) error { return nil }

// fallTogether has each consumer that is closed take all others with it.
func fallTogether() func(transport.Transport) transport.Transport {
	var falls atomic.Int64
	return func(tr transport.Transport) transport.Transport { return &falling{Transport: tr, falls: &falls} }
}

type falling struct {
	transport.Transport

	falls *atomic.Int64
}

func (f *falling) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	c, err := f.Transport.OpenConsumer(ctx, cfg)
	return &fallingConsumer{c, f.falls, f.falls.Load()}, err
}

type fallingConsumer struct {
	transport.Consumer

	falls *atomic.Int64
	since int64
}

func (c *fallingConsumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	ds, err := c.Consumer.Receive(ctx, limit, maxBytes)
	if c.falls.Load() > c.since {
		return nil, errors.New("another consumer was closed")
	}
	return ds, err
}

func (c *fallingConsumer) Close(ctx context.Context) error {
	c.falls.Add(1)
	return c.Consumer.Close(ctx)
}
