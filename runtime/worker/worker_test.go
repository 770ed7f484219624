package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func yaml(text string) worker.Option {
	return worker.Config(config.Options{Data: []config.Data{{Name: "test", Text: []byte(text)}}})
}

func messages(w *worker.Worker, broker, topic string) []*message.Message {
	return w.Transport(broker).(*memory.Transport).Broker().Messages(topic)
}

func publish(t *testing.T, w *worker.Worker, msgs ...*message.Message) {
	t.Helper()
	p, err := w.Transport("").OpenProducer(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Publish(t.Context(), "in", msgs...))
	require.NoError(t, p.Close(t.Context()))
}

// runUntilIdle runs a worker until nothing is left to do.
func runUntilIdle(t *testing.T, w *worker.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		_ = w.Router().WaitIdle(ctx, time.Minute)
	}()
	require.NoError(t, w.Run(ctx))
}

// TestFileToChain: wrap outside of dedup, use inside; outputs to another broker.
func TestFileToChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		note := func(word string) message.HandlerMiddleware {
			return func(next message.HandlerFunc) message.HandlerFunc {
				return func(m *message.Message) ([]*message.Message, error) {
					m.Metadata["way"] += word + " "
					return next(m)
				}
			}
		}
		w, err := worker.New(builtin.All(), yaml(`
broker: memory://main
brokers: {other: memory://other}
store: memory
defaults: {wrap: [outer]}
consumers:
  c:
    topic: in
    handler: say
    dedup: {key: metadata.way}
    use: [one, two]
    publish_to: {broker: other, topic: out}
`), worker.Use("outer", note("outer")), worker.Use("one", note("one")), worker.Use("two", note("two")),
			worker.Handle("say", func(m *message.Message) ([]*message.Message, error) {
				return []*message.Message{message.NewMessage("", message.Payload(m.Metadata["way"]))}, nil
			}))
		require.NoError(t, err)
		publish(t, w, message.NewMessage("1", nil), message.NewMessage("2", nil))
		runUntilIdle(t, w)

		out := messages(w, "other", "out")
		require.Len(t, out, 1, "the key that outer made is the same for both")
		require.Equal(t, "outer one two ", string(out[0].Payload))
		s := w.Router().Status()[0]
		require.EqualValues(t, 1, s.Count(transport.Handled))
		require.EqualValues(t, 1, s.Count(transport.Duplicate))
	})
}

func TestWrongTables(t *testing.T) {
	t.Parallel()
	h := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	_, err := worker.New(builtin.All(), worker.Handle("log", h))
	require.EqualError(t, err, `handler "log" is registered twice`)
	_, err = worker.New(builtin.All(), builtin.All())
	require.ErrorContains(t, err, "is registered twice")

	_, err = worker.New(builtin.All(), worker.Handle("mine", h), yaml("broker: memory://x\nconsumers: {c: {topic: t, handler: {mine: {speed: 1}}}}"))
	wrong, ok := errors.AsType[*config.Error](err)
	require.True(t, ok, err)
	require.Contains(t, wrong.Error(), `unknown key "speed"`)
	_, err = worker.New(yaml("broker: memory://x\nconsumers: {c: {topic: t, handler: mine}}"))
	require.ErrorContains(t, err, `there is no transport "memory"`)
	require.ErrorContains(t, err, `there is no handler "mine"`)

	const chain = "broker: memory://x\nconsumers: {c: {topic: t, handler: mine, use: [link]}}"
	_, err = worker.New(builtin.All(), worker.Handle("mine", nil), worker.Use("link", nil), yaml(chain))
	require.ErrorContains(t, err, `handler "mine" is nil in Go`)
	require.ErrorContains(t, err, `middleware "link" is nil in Go`)
	_, err = worker.New(builtin.All(), yaml("broker: {postgres: {url: postgres://h/d, pool_size: 0}}\nconsumers: {c: {topic: t, handler: log}}"))
	require.ErrorContains(t, err, "pool_size: \"0\" is too small; the least is 2")
}

// brokenStore is a kind of store whose opening is up to a test.
func brokenStore(open worker.OpenStore) worker.Option {
	return worker.Parts(worker.Table{Stores: []worker.StoreKind{{
		Kind: "broken", Check: func(worker.Env, config.Component) (worker.OpenStore, error) { return open, nil },
	}}})
}

const brokenYAML = "broker: memory://x\nstore: broken\nconsumers: {c: {topic: in, handler: discard, dedup: {key: id}}}"

func TestStoreThatRefusesEndsTheWorker(t *testing.T) {
	t.Parallel()
	w, err := worker.New(builtin.All(), yaml(brokenYAML), brokenStore(func(context.Context) (middleware.DedupStore, func() error, error) {
		return nil, nil, transport.Refuse(errors.New("wrong password"))
	}))
	require.NoError(t, err)
	require.EqualError(t, w.Run(t.Context()), "dedup store: wrong password")
}

// TestStoreThatComesLate: messages wait for it, and it is closed once.
func TestStoreThatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		begin := time.Now()
		w, err := worker.New(builtin.All(), yaml(brokenYAML), brokenStore(func(context.Context) (middleware.DedupStore, func() error, error) {
			if time.Since(begin) < time.Hour {
				return nil, nil, errors.New("no route to host")
			}
			return middleware.NewMemoryDedup(0), func() error { closed.Add(1); return nil }, nil
		}))
		require.NoError(t, err)
		publish(t, w, message.NewMessage("1", nil))
		runUntilIdle(t, w)
		require.Greater(t, time.Since(begin), time.Hour)
		s := w.Router().Status()[0]
		require.EqualValues(t, 1, s.Count(transport.Handled))
		require.Zero(t, s.Count(transport.Retried), "an outage is no attempt")
		require.EqualValues(t, 1, closed.Load())
		require.NoError(t, w.Close(t.Context()))
	})
}

func TestInstance(t *testing.T) {
	t.Parallel()
	var seen []transport.Instance
	probe := worker.Parts(worker.Table{Handlers: []worker.HandlerKind{{
		Name: "probe", Build: func(e worker.Env, _ config.Component) (message.HandlerFunc, error) {
			seen = append(seen, e.Instance)
			return func(*message.Message) ([]*message.Message, error) { return nil, nil }, nil
		},
	}}})
	for _, opts := range [][]worker.Option{{}, {}, {worker.Instance("one")}} {
		w, err := worker.New(append(opts, builtin.All(), probe, yaml("broker: memory://x\nconsumers: {c: {topic: t, handler: probe}}"))...)
		require.NoError(t, err)
		require.NoError(t, w.Close(t.Context()))
	}
	require.False(t, seen[0].Set)
	require.NotEqual(t, seen[0].ID, seen[1].ID)
	require.Equal(t, transport.Instance{ID: "one", Set: true}, seen[2])
}
