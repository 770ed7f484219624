package watermill_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// odd is a Pub/Sub whose every call a test can replace.
type odd struct {
	subscribe func(ctx context.Context, topic string) (<-chan *message.Message, error)
	publish   func(topic string, msgs ...*message.Message) error
}

func (o odd) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return o.subscribe(ctx, topic)
}

func (o odd) Publish(topic string, msgs ...*message.Message) error { return o.publish(topic, msgs...) }

func (odd) Close() error { return nil }

// sending gives a Subscriber that sends those messages, and what comes later.
func sending(msgs ...*message.Message) odd {
	return odd{subscribe: func(ctx context.Context, _ string) (<-chan *message.Message, error) {
		out := make(chan *message.Message)
		go func() {
			defer close(out)
			for _, m := range msgs {
				select {
				case out <- m:
				case <-ctx.Done():
					return
				}
			}
			<-ctx.Done()
		}()
		return out, nil
	}}
}

// journal collects what is logged.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func TestOddMessagesArePassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done, held := message.NewMessage("done", nil), message.NewMessage("held", nil)
		done.Ack()
		ps := sending(nil, done, held, held, message.NewMessage("", nil), message.NewMessage("", nil), message.NewMessage("held", nil))
		var said journal
		c, err := watermill.Transport("odd", ps, ps).OpenConsumer(t.Context(), transport.ConsumerConfig{
			Topics: []string{"a"}, Group: "g", Base: t.Context(), Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		require.NoError(t, err)
		var ids []string
		for range 4 {
			for _, d := range receive(t, c) {
				ids = append(ids, d.ID)
			}
		}
		require.Equal(t, []string{"held", "", "", "held"}, ids, "equal ids are two messages, and an id that is empty is none")
		synctest.Wait()
		for _, what := range []string{"nil message", "answered already", "handed out already"} {
			require.Contains(t, said.String(), what)
		}
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestEmptyNamesInMetadata(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("m", nil)
	m.Metadata = message.Metadata{"": "", "\x00": "\xff"}
	ps := sending(m)
	d := receive(t, open(t, watermill.Transport("odd", ps, ps), "a"))[0]
	require.Equal(t, transport.Headers{{Name: "", Value: ""}, {Name: "\x00", Value: "\xff"}}, d.Headers)
	require.Empty(t, d.Key)
}

func TestPanicsAreErrors(t *testing.T) {
	t.Parallel()
	ps := odd{
		subscribe: func(context.Context, string) (<-chan *message.Message, error) { panic("subscribe") },
		publish:   func(string, ...*message.Message) error { panic("publish") },
	}
	tr := watermill.Transport("odd", ps, ps)
	_, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
	require.ErrorContains(t, err, "panic: subscribe")
	p, err := tr.OpenProducer(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, p.Publish(t.Context(), "a", message.NewMessage("m", nil)), "panic: publish")
}

// A Subscriber that never closes its channel holds nobody up.
func TestCloseInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := make(chan *message.Message)
		ps := odd{subscribe: func(context.Context, string) (<-chan *message.Message, error) { return out, nil }}
		c, err := watermill.Transport("odd", ps, ps).OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err = c.Close(ctx)
		require.ErrorContains(t, err, "close subscriber: it did not return")
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, err, c.Close(ctx))
		close(out)
	})
}

// A Subscriber that looks at an ack and at its end in one select loses half of
// such acks: it is not told to end before it has taken them.
func TestAcksAreTakenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			taken := make(chan bool, 1)
			ps := odd{subscribe: func(ctx context.Context, _ string) (<-chan *message.Message, error) {
				out := make(chan *message.Message)
				go func() {
					defer close(out)
					m := message.NewMessage("m", nil)
					own, cancel := context.WithCancel(context.WithoutCancel(ctx))
					defer cancel()
					m.SetContext(own)
					out <- m
					<-time.After(10 * time.Millisecond) // it is slow to look
					select {
					case <-m.Acked():
						taken <- true
					case <-ctx.Done():
						taken <- false
					}
				}()
				return out, nil
			}}
			c, err := watermill.Transport("odd", ps, ps).OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
			require.NoError(t, err)
			settle(t, c, transport.Ack, receive(t, c)[0])
			require.NoError(t, c.Close(t.Context()))
			require.True(t, <-taken)
		}
	})
}

// What a worker that stops has not started is not nacked: the Subscriber would
// hand it out again at once.
func TestReleaseWaitsForTheNextReceive(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("m", nil)
	ps := sending(m)
	c := open(t, watermill.Transport("odd", ps, ps), "a")
	settle(t, c, transport.Release, receive(t, c)[0])
	select {
	case <-m.Nacked():
		t.Fatal("it is nacked")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err := c.Receive(ctx, 1, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		order transport.Order
		want  int
	}{{transport.OrderNone, 3}, {transport.OrderKey, 1}} {
		var mu sync.Mutex
		n := 0
		ps := odd{subscribe: func(ctx context.Context, topic string) (<-chan *message.Message, error) {
			mu.Lock()
			defer mu.Unlock()
			n++
			return sending(message.NewMessage("m", nil)).Subscribe(ctx, topic)
		}}
		c, err := watermill.Transport("odd", ps, ps, watermill.Subscriptions(3)).OpenConsumer(t.Context(), transport.ConsumerConfig{
			Topics: []string{"a"}, Group: "g", Order: of.order, Prefetch: 10, Base: t.Context(),
		})
		require.NoError(t, err)
		require.Equal(t, of.want, n)
		require.NoError(t, c.Close(t.Context()))
	}
}

func TestPublishErrors(t *testing.T) {
	t.Parallel()
	ps := odd{publish: func(string, ...*message.Message) error { return errors.New("no") }}
	p, err := watermill.Transport("odd", ps, ps).OpenProducer(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Publish(t.Context(), "a"))
	err = p.Publish(t.Context(), "a b", message.NewMessage("1", nil), message.NewMessage("2", nil))
	partly, ok := errors.AsType[*transport.PublishError](err)
	require.True(t, ok)
	require.Len(t, partly.Failed, 2)
	require.True(t, partly.Failed[1].Permanent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Publish(ctx, "a", message.NewMessage("1", nil)), context.Canceled)
}
