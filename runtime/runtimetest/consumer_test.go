package runtimetest_test

import (
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/runtimetest"
	"github.com/leat-io/leat/runtime/transport"
)

// TestConsumer: no file at all, and everything that a handler can do wrong.
func TestConsumer(t *testing.T) {
	t.Parallel()
	retry, err := transport.NewRetryPolicy(transport.Backoff{Attempts: 2, Jitter: -1})
	require.NoError(t, err)
	for name, h := range map[string]message.HandlerFunc{
		"error":  func(*message.Message) ([]*message.Message, error) { return nil, errBusy },
		"panic":  func(*message.Message) ([]*message.Message, error) { panic("no bank") },
		"Goexit": func(*message.Message) ([]*message.Message, error) { goruntime.Goexit(); return nil, nil },
		"timeout": func(m *message.Message) ([]*message.Message, error) {
			<-m.Context().Done()
			return nil, m.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := transport.Policy{Retry: retry, Timeout: time.Minute}
			runtimetest.Run(t, runtimetest.Consumer("c", "in", h, p), func(k *runtimetest.Kit) {
				m := k.Publish("in", "x")
				require.Equal(k, 200*time.Millisecond, k.ExpectRetried(m))
				k.ExpectDead(m)
				dead := k.Dead()
				require.Len(k, dead, 1)
				if name == "panic" {
					require.Contains(k, dead[0].Message.Metadata[transport.DeadStackHeader], "TestConsumer", "the stack is the handler's")
				}
			})
		})
	}
}

// TestDedupInCode: a duplicate is seen where the kit does not keep the keys.
func TestDedupInCode(t *testing.T) {
	t.Parallel()
	dedup, err := middleware.Dedup(middleware.DedupOptions{Store: middleware.NewMemoryDedup(0)})
	require.NoError(t, err)
	runtimetest.Run(t, runtimetest.Consumer("c", "in", handlers.Discard(), transport.Policy{Dedup: dedup}), func(k *runtimetest.Kit) {
		m := &message.Message{UUID: "the same", Payload: []byte("{}")}
		k.ExpectHandled(k.Publish("in", m))
		k.ExpectDuplicate(k.Publish("in", m))
		other := k.Publish("in", &message.Message{UUID: "the same", Payload: []byte("[]")})
		k.ExpectDead(other)
		require.Equal(k, transport.ReasonIDReused, k.Dead()[0].Reason)
	})
}

// TestOuterLinks: what a link outside of everything does is seen as well.
func TestOuterLinks(t *testing.T) {
	t.Parallel()
	outer := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			switch string(m.Payload) {
			case `"skip"`:
				return nil, handlers.Skip("not ours")
			case `"swallow"`:
				return nil, nil
			case `"permanent"`:
				return nil, handlers.Permanent(errBusy)
			case `"fail"`:
				return nil, errBusy
			}
			return next(m)
		}
	}
	p := transport.Policy{Wrap: []message.HandlerMiddleware{outer}}
	runtimetest.Run(t, runtimetest.Consumer("c", "in", handlers.Discard(), p), func(k *runtimetest.Kit) {
		k.ExpectSkipped(k.Publish("in", "skip"))
		k.ExpectHandled(k.Publish("in", "swallow"))
		k.ExpectDead(k.Publish("in", "permanent"))
		fail := k.Publish("in", "fail")
		require.GreaterOrEqual(k, k.ExpectRetried(fail), 200*time.Millisecond)
		k.ExpectDead(fail)
	})
}

// TestAckOnReceive: at most once has its outcomes too.
func TestAckOnReceive(t *testing.T) {
	t.Parallel()
	h := func(m *message.Message) ([]*message.Message, error) {
		if d, _ := handlers.DeliveryFrom(m.Context()); d.Attempt == 1 {
			return nil, errBusy
		}
		return nil, nil
	}
	runtimetest.Run(t, runtimetest.Consumer("c", "in", h, transport.Policy{AckOnReceive: true}), func(k *runtimetest.Kit) {
		m := k.Publish("in", "x")
		k.ExpectRetried(m)
		k.ExpectHandled(m)
	})
}

// TestEmittedItself: ids and headers of what was emitted can be looked at.
func TestEmittedItself(t *testing.T) {
	t.Parallel()
	h := func(m *message.Message) ([]*message.Message, error) {
		for n := range 3 {
			if err := handlers.Emit(m.Context(), "out", n, handlers.Key("k")); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	runtimetest.Run(t, runtimetest.Consumer("c", "in", h, transport.Policy{}), func(k *runtimetest.Kit) {
		k.Publish("in", "x")
		require.Equal(k, []int{0, 1, 2}, runtimetest.Emitted[int](k, "out"))
		m := runtimetest.Emitted[*message.Message](k, "out")[0]
		require.Equal(k, "k", m.Metadata[transport.KeyHeader])
		require.Equal(k, "1", m.Metadata[transport.DerivedHeader])
		require.Empty(k, runtimetest.Emitted[int](k, "elsewhere"))
	})
}

// TestManyAtOnce: a thousand messages, one kit.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	h := func(*message.Message) ([]*message.Message, error) {
		<-time.After(time.Second)
		return nil, nil
	}
	runtimetest.Run(t, runtimetest.Consumer("c", "in", h, transport.Policy{Concurrency: 10}), func(k *runtimetest.Kit) {
		began := time.Now()
		for n := range 1000 {
			k.Publish("in", n, handlers.Key(fmt.Sprint(n%100)))
		}
		k.ExpectHandled()
		require.Less(k, time.Since(began), 110*time.Second)
		require.Equal(k, int64(1000), k.Status("c").Count(transport.Handled))
	})
}
