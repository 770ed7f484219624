package runtime_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one broker and a router on it, inside a synctest bubble: its clock
// moves only when everything waits.
type world struct {
	*testing.T
	tr     transport.Transport
	broker *memory.Broker // nil on SQLite
	opts   runtime.Options

	router *runtime.Router
	stop   context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	runs map[string][]run // by message id, in the order they began
	log  []string         // ids in the order their runs began
}

// run is one attempt as a handler sees it.
type run struct {
	attempt int
	at      time.Time
	msg     *message.Message
}

// worlds runs a scenario on every broker that lives in this process.
func worlds(t *testing.T, scenario func(w *world)) {
	t.Helper()
	brokers := map[string]func(w *world){
		"memory":          func(w *world) { w.useMemory(memory.Options{}) },
		"memory as a log": func(w *world) { w.useMemory(memory.Options{Log: true}) },
		"memory as a queue": func(w *world) {
			c := memory.Capabilities()
			c.KeyOrder, c.StableCoordinates, c.Attempts = transport.ScopeWorker, false, transport.KeepAfterDelay
			c.ReleaseInOrder = false
			w.useMemory(memory.Options{Capabilities: &c})
		},
		"sqlite": func(w *world) {
			tr, err := sql.OpenSQLite(sql.Options{Path: filepath.Join(w.TempDir(), "w.db")})
			require.NoError(w, err)
			w.tr = tr
		},
	}
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				play(t, open, scenario)
			})
		})
	}
}

// inMemory runs a scenario that needs faults.
func inMemory(t *testing.T, o memory.Options, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		play(t, func(w *world) { w.useMemory(o) }, scenario)
	})
}

// play runs a scenario and stops what it has started, also if it fails.
func play(t *testing.T, open, scenario func(w *world)) {
	t.Helper()
	w := &world{T: t, runs: make(map[string][]run)}
	open(w)
	var err error
	defer func() {
		if w.stop != nil {
			err = w.drain()
		}
		require.NoError(t, w.tr.Close(context.Background()))
		require.NoError(t, err)
	}()
	scenario(w)
}

func (w *world) useMemory(o memory.Options) {
	w.broker = memory.NewBroker(o)
	w.tr = w.broker.Transport()
}

// policy is the default one with a whole chain and a retry schedule without jitter.
func (w *world) policy(change ...func(*transport.Policy)) transport.Policy {
	w.Helper()
	p := transport.Policy{Group: "g", Order: transport.OrderKey, Timeout: time.Minute, Retry: backoff(w, 5)}
	for _, c := range change {
		c(&p)
	}
	p = p.Defaults("c", w.tr.Capabilities())
	if p.Middleware == nil {
		p.Middleware = middleware.Default(p)
	}
	return p
}

func backoff(tb testing.TB, attempts int) *transport.RetryPolicy {
	tb.Helper()
	p, err := transport.NewRetryPolicy(transport.Backoff{Attempts: attempts, InitialInterval: time.Second, MaxInterval: 8 * time.Second, Jitter: -1})
	require.NoError(tb, err)
	return p
}

// consume adds the consumer "c" of topic "in" and starts the router.
func (w *world) consume(h message.HandlerFunc, p transport.Policy) {
	w.Helper()
	w.add("c", "in", h, p)
	w.start()
}

func (w *world) add(name, topic string, h message.HandlerFunc, p transport.Policy) {
	w.Helper()
	if w.router == nil {
		w.router = runtime.NewRouter(w.opts)
	}
	require.NoError(w, w.router.Consume(name, w.tr, topic, w.noting(h), p))
}

// noting keeps a list of all runs.
func (w *world) noting(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		w.mu.Lock()
		w.runs[m.UUID] = append(w.runs[m.UUID], run{transport.AttemptFrom(m.Context()).Number(), time.Now(), m})
		w.log = append(w.log, m.UUID)
		w.mu.Unlock()
		return h(m)
	}
}

func (w *world) start() {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	r, ended := w.router, w.ended
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-w.router.Ready():
	case err := <-w.ended:
		require.NoError(w, err, "router ended before it was ready")
	}
}

// drain stops the router and waits for it.
func (w *world) drain() error {
	w.stop()
	err := <-w.ended
	w.stop, w.router = nil, nil
	return err
}

// settled waits until nothing is in flight or waits, and tells the status.
func (w *world) settled() runtime.Status {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	require.NoError(w, w.router.WaitIdle(ctx, 3*time.Second))
	return w.router.Status()[0]
}

func (w *world) publish(topic string, msgs ...*message.Message) {
	w.Helper()
	require.NoError(w, w.tryPublish(topic, msgs...))
}

func (w *world) tryPublish(topic string, msgs ...*message.Message) error {
	p, err := w.tr.OpenProducer(context.Background())
	require.NoError(w, err)
	err = p.Publish(context.Background(), topic, msgs...)
	require.NoError(w, p.Close(context.Background()))
	return err
}

// msg makes a message; pairs are header names and values.
func msg(id, key, payload string, pairs ...string) *message.Message {
	m := &message.Message{UUID: id, Payload: message.Payload(payload), Metadata: message.Metadata{}}
	if key != "" {
		m.Metadata[transport.KeyHeader] = key
	}
	for i := 0; i < len(pairs); i += 2 {
		m.Metadata[pairs[i]] = pairs[i+1]
	}
	return m
}

// read takes everything that a new group gets of a topic.
func (w *world) read(topic string) []*transport.Delivery {
	w.Helper()
	ctx := context.Background()
	group := "reader-" + topic
	require.NoError(w, w.tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: group}))
	c, err := w.tr.OpenConsumer(ctx, transport.ConsumerConfig{
		Name: "reader", Topics: []string{topic}, Group: group, Prefetch: 1000, PrefetchBytes: 1 << 30, Span: 1 << 20,
		Base: ctx, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(w, err)
	var out []*transport.Delivery
	for {
		d, err := w.tr.Depth(ctx, topic, group)
		require.NoError(w, err)
		if d.Ready+d.Delayed <= int64(len(out)) && d.Ready+d.Delayed+d.Held <= int64(len(out)) {
			break
		}
		ds, err := c.Receive(ctx, 1000, 1<<30)
		require.NoError(w, err)
		out = append(out, ds...)
	}
	require.NoError(w, c.Close(ctx))
	return out
}

func (w *world) order() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.log...)
}

func (w *world) runsOf(id string) []run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]run(nil), w.runs[id]...)
}
