package middleware_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

type permanent struct{ error }

func (permanent) Permanent() bool { return true }
func (p permanent) Unwrap() error { return p.error }

type skipped struct{ error }

func (skipped) Skip() bool { return true }

type later struct {
	error

	after time.Duration
}

func (l later) RetryAfter() time.Duration { return l.after }

// delivery makes a delivery of an assignment that t ends.
func delivery(tb testing.TB, id string, payload []byte, metadata map[string]string) *transport.Delivery {
	tb.Helper()
	base, cancel := context.WithCancelCause(context.Background())
	tb.Cleanup(func() { cancel(nil) })
	return &transport.Delivery{
		ID: id, Payload: payload, Headers: transport.HeadersOf(metadata), Topic: "orders",
		Assignment: transport.NewAssignment(base, "orders", 0),
	}
}

// attempt begins attempt n of a delivery with that id.
func attempt(tb testing.TB, id string, n int) *transport.Attempt {
	tb.Helper()
	return transport.NewAttempt(delivery(tb, id, []byte(`{"id":1}`), nil), "charge", "payments.charge", n, time.Time{})
}

// settle ends an attempt as the engine does, with the outcome it came to.
func settle(tb testing.TB, a *transport.Attempt, o transport.Outcome) {
	tb.Helper()
	_, hooks, _ := a.End()
	for _, h := range hooks {
		require.NoError(tb, h(context.Background(), o))
	}
}

// chain composes links, outermost first.
func chain(handler message.HandlerFunc, links ...message.HandlerMiddleware) message.HandlerFunc {
	for _, link := range slices.Backward(links) {
		handler = link(handler)
	}
	return handler
}

func failing(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, err }
}

func policy(tb testing.TB, b transport.Backoff) *transport.RetryPolicy {
	tb.Helper()
	p, err := transport.NewRetryPolicy(b)
	require.NoError(tb, err)
	return p
}

// pass lets d go by, in a bubble's time.
func pass(d time.Duration) { <-time.After(d) }

// publisher keeps what it is given, after failing a few times.
type publisher struct {
	mu     sync.Mutex
	fails  int
	topics []string
	msgs   []*message.Message
}

func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails != 0 {
		p.fails--
		return errors.New("broker is down")
	}
	for _, m := range msgs {
		p.topics = append(p.topics, topic)
		p.msgs = append(p.msgs, m)
	}
	return nil
}

func (*publisher) Close() error { return nil }

// watermillRouter runs a handler under Watermill's own Router and returns a
// function that publishes a message and returns when it is acked.
func watermillRouter(t *testing.T, handler message.HandlerFunc, links ...message.HandlerMiddleware) func(*message.Message) {
	t.Helper()
	pubSub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	router.AddMiddleware(links...)
	router.AddHandler("charge", "orders", pubSub, "receipts", pubSub, handler)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
		require.NoError(t, pubSub.Close())
	})
	return func(m *message.Message) { require.NoError(t, pubSub.Publish("orders", m)) }
}

// bubble runs one case of a property in virtual time. What rapid throws to end
// a case must not end the bubble's goroutine.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	var thrown any
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		defer func() { thrown = recover() }()
		fn(t)
	})
	if thrown != nil {
		panic(thrown)
	}
}
