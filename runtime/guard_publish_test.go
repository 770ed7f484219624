package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// TestProducerThatPanics: it is a publish that failed, and is tried again.
func TestProducerThatPanics(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"a", "in--g--dead"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				var calls atomic.Int64
				w.publisher(func(ctx context.Context, to string, next publish, msgs ...*message.Message) error {
					if to == topic && calls.Add(1) <= 3 {
						panic("no connection")
					}
					return next(ctx, to, msgs...)
				})
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					if topic != "a" {
						return nil, permanent{errBoom}
					}
					return emits("a")(m)
				}, w.policy())
				w.publish("in", msg("m", "k", "x"))
				w.settled()
				require.Equal(w, int64(4), calls.Load())
				require.Len(w, w.read(topic), 1)
				require.Len(w, w.runsOf("m"), 1)
				require.Equal(w, int64(1), w.broker.Acked("in", "g"))
			})
		})
	}
}

// TestPublishErrorThatSaysNothing: one that names no failure, or one that was
// not asked for, confirms nothing.
func TestPublishErrorThatSaysNothing(t *testing.T) {
	t.Parallel()
	failed := func(index int) []transport.PublishFailure {
		return []transport.PublishFailure{{Index: index, Err: errAway}}
	}
	for name, failures := range map[string][]transport.PublishFailure{
		"none": nil, "beyond the last": failed(1), "before the first": failed(-1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				var away atomic.Bool
				away.Store(true)
				w.publisher(func(ctx context.Context, to string, next publish, msgs ...*message.Message) error {
					if to == "in--g--dead" && away.Load() {
						return fmt.Errorf("broker: %w", errors.Join(&transport.PublishError{Topic: to, Failed: failures}, errAway))
					}
					return next(ctx, to, msgs...)
				})
				w.consume(func(*message.Message) ([]*message.Message, error) { return nil, permanent{errBoom} }, w.policy())
				w.publish("in", msg("m", "k", "x"))
				time.Sleep(time.Minute)
				require.Zero(w, w.broker.Acked("in", "g"))
				away.Store(false)
				w.settled()
				require.Len(w, w.read("in--g--dead"), 1)
			})
		})
	}
}

// TestOutputsAreCheckedFirst: one that can never be published leaves none of
// the others behind.
func TestOutputsAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for name, outs := range map[string][]transport.Output{
		"a topic that is not legal": {{Topic: "a", Message: msg("", "", "x")}, {Topic: "not legal!", Message: msg("", "", "x")}},
		"no message":                {{Topic: "a", Message: msg("", "", "x")}, {Topic: "b"}},
		"no publish_to":             {{Topic: "a", Message: msg("", "", "x")}, {Message: msg("", "", "x")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					for _, o := range outs {
						require.NoError(w, transport.Emit(m.Context(), o.Topic, o.Message))
					}
					return nil, nil
				}, w.policy())
				w.publish("in", msg("m", "k", "x"))
				require.Equal(w, int64(1), w.settled().Count(transport.Dead))
				require.Len(w, w.read("in--g--dead"), 1)
				require.Empty(w, w.broker.Messages("a"))
			})
		})
	}
}

// TestDeadLetterThatIsRefused: the copy is tried once more without our texts,
// and if that is refused too, for ever: the message stays with the broker.
func TestDeadLetterThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]func(*message.Message) bool{
		"with our texts": func(m *message.Message) bool { return strings.Contains(fmt.Sprint(m.Metadata), "boom") },
		"always":         func(*message.Message) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "in--g--dead", Err: errAway, Permanent: true, Match: refused})
				w.consume(func(*message.Message) ([]*message.Message, error) { return nil, permanent{errBoom} }, w.policy())
				w.publish("in", msg("m", "k", "x"))
				if name == "always" {
					time.Sleep(time.Hour)
					require.Zero(w, w.broker.Acked("in", "g"))
					require.Equal(w, runtime.StateBlocked, w.router.Status()[0].State)
					remove()
				}
				w.settled()
				require.Len(w, w.read("in--g--dead"), 1)
				require.Len(w, w.runsOf("m"), 1)
			})
		})
	}
}

// TestInterruptionOfSomethingElse: an error that says shutdown or revoked, of
// an attempt that is not cancelled, is no failure: it waits, and spends nothing.
func TestInterruptionOfSomethingElse(t *testing.T) {
	t.Parallel()
	for _, err := range []error{transport.ErrShutdown, transport.ErrRevoked} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				var over atomic.Bool
				w.consume(func(*message.Message) ([]*message.Message, error) {
					if over.Load() {
						return nil, nil
					}
					return nil, fmt.Errorf("inner worker: %w", err)
				}, w.policy(func(p *transport.Policy) { p.Retry = backoff(w, 2) }))
				w.publish("in", msg("m", "k", "x"))
				time.Sleep(100 * time.Second)
				over.Store(true)
				s := w.settled()
				require.Equal(w, int64(1), s.Count(transport.Handled))
				require.Zero(w, s.Count(transport.Dead)+s.Count(transport.Retried)+s.Count(transport.Interrupted))
				runs := w.runsOf("m")
				require.InDelta(w, 100, len(runs), 2, "a wait between them, that does not grow")
				require.Equal(w, 1, runs[len(runs)-1].attempt)
			})
		})
	}
}

// TestWaitForNothing: a link that asks to wait no time does not spin.
func TestWaitForNothing(t *testing.T) {
	t.Parallel()
	memories(t, func(w *world) {
		began := time.Now()
		w.consume(func(*message.Message) ([]*message.Message, error) {
			if time.Since(began) < time.Second {
				return nil, &transport.Wait{}
			}
			return nil, nil
		}, w.policy())
		w.publish("in", msg("m", "k", "x"))
		w.settled()
		require.Greater(w, len(w.runsOf("m")), 10)
		require.LessOrEqual(w, len(w.runsOf("m")), 102)
	})
}

// askingLog is a log that asks the router how it is before it writes.
type askingLog struct {
	slog.Handler
	router *atomic.Pointer[runtime.Router]
	asked  *atomic.Int64
}

func (askingLog) Enabled(context.Context, slog.Level) bool { return true }
func (h askingLog) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h askingLog) Handle(context.Context, slog.Record) error {
	if r := h.router.Load(); r != nil {
		r.Status()
		h.asked.Add(1)
	}
	return nil
}

// TestLogThatAsks: nothing is logged under a lock of the engine.
func TestLogThatAsks(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		var router atomic.Pointer[runtime.Router]
		var asked atomic.Int64
		w.opts.Log = slog.New(askingLog{slog.DiscardHandler, &router, &asked})
		w.router = runtime.NewRouter(w.opts)
		router.Store(w.router)
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "k0/000" {
				return nil, errBoom
			}
			m.Ack()
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency, p.Prefetch = 1, 4 }))
		w.publishKeys(1, 20)
		w.broker.Inject(memory.Fault{Op: memory.OpSettle, Err: errAway, Times: 2})
		time.Sleep(10 * time.Second)
		w.broker.Cut(errAway, nil)
		w.settled()
		require.NoError(w, w.drain())
		require.Greater(w, asked.Load(), int64(8), "started, failures, pauses, troubles, the lost broker")
	})
}

// TestWrapThatCopies: a wrap link may hand on a message of its own making, as
// long as it copies the metadata: the run stays the engine's. Without, it is told.
func TestWrapThatCopies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		remake func(m *message.Message) *message.Message
		text   string
	}{
		"a copy":     {func(m *message.Message) *message.Message { return m.Copy() }, "boom"},
		"a stranger": {func(m *message.Message) *message.Message { return message.NewMessage(m.UUID, m.Payload) }, "CopyWithContext"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				link := func(next message.HandlerFunc) message.HandlerFunc {
					return func(m *message.Message) ([]*message.Message, error) { return next(tt.remake(m)) }
				}
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					require.NotContains(w, m.Metadata, "leat_run")
					return nil, errBoom
				}, w.policy(func(p *transport.Policy) { p.Wrap, p.Retry = []message.HandlerMiddleware{link}, backoff(w, 2) }))
				w.publish("in", msg("m", "k", "x", "h", "v"))
				s := w.settled()
				require.Equal(w, int64(1), s.Count(transport.Dead))
				require.Equal(w, int64(1), s.Count(transport.Retried))
				letter := w.read("in--g--dead")[0]
				require.Equal(w, "2", letter.Headers.Get(transport.DeadAttemptsHeader))
				require.Contains(w, letter.Headers.Get(transport.DeadErrorHeader), tt.text)
				require.Equal(w, "v", letter.Headers.Get("h"))
				require.Empty(w, letter.Headers.Get("leat_run"))
			})
		})
	}
}

// TestMiddlewareThatCannotBeBuilt is refused at the start, by name of its consumer.
func TestMiddlewareThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	for text, link := range map[string]message.HandlerMiddleware{
		"a middleware panics":             func(message.HandlerFunc) message.HandlerFunc { panic("no") },
		"a middleware returns no handler": func(message.HandlerFunc) message.HandlerFunc { return nil },
	} {
		inMemory(t, memoryDefaults, func(w *world) {
			r := runtime.NewRouter(runtime.Options{})
			require.NoError(w, r.Consume("c", w.tr, "in", ok, w.policy(func(p *transport.Policy) { p.Use = []message.HandlerMiddleware{link} })))
			require.ErrorContains(w, r.Run(context.Background()), `consumer "c": `+text)
		})
	}
}
