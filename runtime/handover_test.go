package runtime_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// patched is a transport whose consumers, or producers, do as a test wants.
type patched struct {
	transport.Transport
	consumer func(transport.Consumer) transport.Consumer
	publish  func(ctx context.Context, topic string, next publish, msgs ...*message.Message) error
}

// publish and receive are what the broker itself would do.
type (
	publish func(ctx context.Context, topic string, msgs ...*message.Message) error
	receive func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error)
	settle  func(ctx context.Context, batch []transport.Settlement) error
)

func (p *patched) OpenConsumer(ctx context.Context, cfg transport.ConsumerConfig) (transport.Consumer, error) {
	c, err := p.Transport.OpenConsumer(ctx, cfg)
	if err != nil || p.consumer == nil {
		return c, err
	}
	return p.consumer(c), nil
}

func (p *patched) OpenProducer(ctx context.Context) (transport.Producer, error) {
	next, err := p.Transport.OpenProducer(ctx)
	if err != nil || p.publish == nil {
		return next, err
	}
	return patchedProducer{next, p}, nil
}

type patchedProducer struct {
	transport.Producer
	by *patched
}

func (p patchedProducer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	return p.by.publish(ctx, topic, p.Producer.Publish, msgs...)
}

// patchedConsumer counts calls, and passes on those that are not patched.
type patchedConsumer struct {
	transport.Consumer
	receive func(ctx context.Context, limit int, maxBytes int64, next receive) ([]*transport.Delivery, error)
	settle  func(ctx context.Context, batch []transport.Settlement, next settle) error
}

func (c patchedConsumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	if c.receive == nil {
		return c.Consumer.Receive(ctx, limit, maxBytes)
	}
	return c.receive(ctx, limit, maxBytes, c.Consumer.Receive)
}

func (c patchedConsumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	if c.settle == nil {
		return c.Consumer.Settle(ctx, batch)
	}
	return c.settle(ctx, batch, c.Consumer.Settle)
}

// publisher has every publish go through fn.
func (w *world) publisher(fn func(ctx context.Context, topic string, next publish, msgs ...*message.Message) error) {
	w.tr = &patched{Transport: w.tr, publish: fn}
}

// connections has each connection of a consumer, numbered from 1, patched by fn.
func (w *world) connections(fn func(n int64) patchedConsumer) *atomic.Int64 {
	var opened atomic.Int64
	w.tr = &patched{Transport: w.tr, consumer: func(c transport.Consumer) transport.Consumer {
		p := fn(opened.Add(1))
		p.Consumer = c
		return p
	}}
	return &opened
}

// apart gives keys of two partitions.
func (w *world) apart() (one, other string) {
	w.Helper()
	one, other = "a", "b"
	for w.partitionOf(other) == w.partitionOf(one) {
		other += "b"
	}
	return one, other
}

// standingLog takes twenty seconds for everything it is told from some time on.
type standingLog struct {
	slog.Handler
	on *atomic.Bool
}

func (standingLog) Enabled(context.Context, slog.Level) bool { return true }
func (h standingLog) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h standingLog) Handle(context.Context, slog.Record) error {
	if h.on.Load() {
		time.Sleep(20 * time.Second)
	}
	return nil
}

// TestRevokedWhileItRuns: a message that is back before its attempt has ended
// waits for it, even if the log stands still, and is acked unrun.
func TestRevokedWhileItRuns(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
			var stands atomic.Bool
			w.opts.Log = slog.New(standingLog{slog.DiscardHandler, &stands})
			var now, most atomic.Int64
			w.consume(func(*message.Message) ([]*message.Message, error) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				time.Sleep(10 * time.Second) // longer than the 5s of a rebalance, and deaf to its context
				return nil, nil
			}, w.policy(func(p *transport.Policy) { p.Timeout = 0 }))
			w.publish("in", msg("m", key, "x"))
			time.Sleep(time.Second)
			stands.Store(true)
			w.broker.Rebalance("g", "in", 0)
			s := w.settled()
			stands.Store(false)
			require.Equal(w, int64(1), most.Load())
			require.Len(w, w.order(), 1)
			require.Equal(w, int64(1), s.Count(transport.Duplicate))
			require.Equal(w, int64(1), w.broker.Acked("in", "g"))
		})
	}
}

// TestManyHandovers: no message runs beside itself, however often its
// partition goes and comes.
func TestManyHandovers(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1, RebalanceDrain: time.Millisecond}, func(w *world) {
		var busy [300]atomic.Bool
		var beside atomic.Int64
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			i := len(m.Payload)
			if busy[i].Swap(true) {
				beside.Add(1)
			}
			time.Sleep(4 * time.Millisecond)
			busy[i].Store(false)
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = 64 }))
		body := make([]byte, len(busy))
		for i := range busy {
			w.publish("in", msg(fmt.Sprint(i), "", string(body[:i])))
			switch i % 3 {
			case 0:
				w.broker.Rebalance("g", "in", 0)
			case 1:
				w.broker.Revoke("g", "in", 0)
			}
			time.Sleep(time.Millisecond)
		}
		s := w.settled()
		require.Zero(w, beside.Load())
		require.Equal(w, int64(len(busy)), w.broker.Acked("in", "g"))
		require.Equal(w, 1, s.Partitions, "ended spells are forgotten")
	})
}

// TestEndedOnTheWay: what was received of a partition that ended before the
// engine could look is left to its next spell, in order.
func TestEndedOnTheWay(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*memory.Broker){
		"leave":  func(b *memory.Broker) { b.Rebalance("g", "in", 0) },
		"revoke": func(b *memory.Broker) { b.Revoke("g", "in", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
				left := 3
				w.connections(func(int64) patchedConsumer {
					return patchedConsumer{receive: func(ctx context.Context, limit int, maxBytes int64, next receive) ([]*transport.Delivery, error) {
						ds, err := next(ctx, limit, maxBytes)
						if len(ds) > 0 && left > 0 {
							left--
							end(w.broker)
						}
						return ds, err
					}}
				})
				w.consume(ok, w.policy())
				w.publishKeys(1, 20)
				s := w.settled()
				require.Zero(w, left)
				require.Len(w, w.order(), 20)
				w.requireKeyOrder()
				require.Equal(w, int64(20), s.Count(transport.Handled))
				require.Equal(w, 1, s.Partitions)
			})
		})
	}
}

// TestAckUnderWayOfARevoked: what was done with, and could not be told before
// its partition was revoked, is acked unrun when it comes back.
func TestAckUnderWayOfARevoked(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		remove := w.broker.Inject(faultOf(memory.OpSettle, errAway))
		w.consume(ok, w.policy())
		w.publishKeys(1, 10)
		time.Sleep(time.Second)
		require.Len(w, w.order(), 10)
		w.broker.Revoke("g", "in", 0)
		remove()
		s := w.settled()
		require.Len(w, w.order(), 10)
		require.Equal(w, int64(10), s.Count(transport.Duplicate))
		require.Equal(w, int64(10), w.broker.Acked("in", "g"))
	})
}

// TestFencedDrains: a fenced process cancels what runs and waits for it a
// moment; what runs comes again elsewhere, no attempt spent.
func TestFencedDrains(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		run func(context.Context)
		is  transport.Outcome
	}{
		"a handler that obeys":    {func(ctx context.Context) { <-ctx.Done() }, transport.Interrupted},
		"one that takes a moment": {func(context.Context) { time.Sleep(1700 * time.Millisecond) }, transport.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				var cause atomic.Value
				var returned, ended atomic.Bool
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					tc.run(m.Context())
					cause.Store(context.Cause(m.Context()))
					returned.Store(!ended.Load())
					return nil, m.Context().Err()
				}, w.policy(func(p *transport.Policy) { p.Retry = backoff(w, 1) }))
				w.publish("in", msg("m", "k", "x"))
				time.Sleep(time.Second)
				w.broker.Inject(memory.Fault{Op: memory.OpReceive, Err: transport.ErrFenced, Times: 1})
				err := <-w.ended
				ended.Store(true)
				s := w.router.Status()[0]
				w.stop()
				w.stop, w.router = nil, nil
				require.ErrorIs(w, err, transport.ErrFenced)
				require.True(w, returned.Load(), "before Run does")
				require.True(w, transport.Interrupts(cause.Load().(error)), "cancelled: %v", cause.Load())
				require.Equal(w, runtime.StateFailed, s.State)
				require.Equal(w, int64(1), s.Count(tc.is))
				require.Zero(w, s.Running)

				w.consume(ok, w.policy())
				w.settled()
				require.Equal(w, 1, w.runsOf("m")[1].attempt)
				require.Empty(w, w.read("in--g--dead"))
			})
		})
	}
}

// TestReconnectsWhileADeadLetterIsDown: each connection finds the producers
// that are in use; the race detector looks on.
func TestReconnectsWhileADeadLetterIsDown(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "in--g--dead", Err: errAway})
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, permanent{errBoom} }, w.policy())
		w.publish("in", msg("m", "k", "x"))
		time.Sleep(time.Second)
		for range 8 {
			w.broker.Cut(errAway, nil)
			time.Sleep(5 * time.Second)
		}
		remove()
		s := w.settled()
		require.Len(w, w.read("in--g--dead"), 1)
		require.Len(w, w.order(), 1)
		require.Equal(w, int64(1), s.Count(transport.Duplicate), "it waited for the first, and was acked unrun")
	})
}

// TestConnectionsThatBreakAtOnce are opened with growing waits.
func TestConnectionsThatBreakAtOnce(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		opened := w.connections(func(int64) patchedConsumer {
			return patchedConsumer{receive: func(context.Context, int, int64, receive) ([]*transport.Delivery, error) { return nil, errAway }}
		})
		w.consume(ok, w.policy())
		time.Sleep(10 * time.Minute)
		require.Less(w, opened.Load(), int64(130), "half of ten seconds apart, but for the first few")
		require.Greater(w, opened.Load(), int64(50))
	})
}
