package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// world is a broker in a bubble of virtual time, with a publisher.
type world struct {
	*testing.T

	broker *memory.Broker
	tr     transport.Transport
	pub    *pubsub.Publisher
}

func inWorld(t *testing.T, fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		w := &world{T: t, broker: b, tr: b.Transport()}
		w.pub = pubsub.NewPublisher(w.tr)
		t.Cleanup(func() { require.NoError(t, w.pub.Close()) })
		fn(w)
	})
}

func (w *world) subscriber() *pubsub.Subscriber {
	sub := pubsub.NewSubscriber(w.tr, "charge")
	w.Cleanup(func() { require.NoError(w, sub.Close()) })
	return sub
}

func (w *world) subscribe(sub *pubsub.Subscriber) <-chan *message.Message {
	w.Helper()
	msgs, err := sub.Subscribe(context.Background(), "orders")
	require.NoError(w, err)
	return msgs
}

func (w *world) publish(ids ...string) {
	w.Helper()
	for _, id := range ids {
		m := message.NewMessage(id, []byte("body of "+id))
		if len(id) == 2 { // a key and a number
			m.Metadata.Set(transport.KeyHeader, id[:1])
		}
		require.NoError(w, w.pub.Publish("orders", m))
	}
}

// silent asserts that nothing comes though time goes on.
func (w *world) silent(msgs <-chan *message.Message, d time.Duration) {
	w.Helper()
	select {
	case m := <-msgs:
		require.Nil(w, m, "a message came")
	case <-time.After(d):
	}
}

func TestNackWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		sub.Backoff = transport.Backoff{InitialInterval: 100 * time.Millisecond, MaxInterval: time.Second, Jitter: -1}
		msgs := w.subscribe(sub)
		w.publish("a")
		at := time.Now()
		var waits []time.Duration
		for range 7 {
			m := <-msgs
			require.Equal(w, "body of a", string(m.Payload))
			m.Payload, m.Metadata["changed"] = nil, "yes" // no later hand-over sees it
			waits = append(waits, time.Since(at))
			at = time.Now()
			m.Nack()
		}
		ms := time.Millisecond
		require.Equal(w, []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}, waits)
		m := <-msgs
		require.Empty(w, m.Metadata["changed"])
		m.Ack()
		w.silent(msgs, time.Hour)
	})
}

func TestManyInFlightWhereOrderAllowsIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		sub.Concurrency = 3
		msgs := w.subscribe(sub)
		w.publish("a1", "a2", "b1", "c1", "d1")
		first := map[string]*message.Message{}
		for range 3 {
			m := <-msgs
			first[m.UUID] = m
		}
		require.NotContains(w, first, "a2", "it waits for a1")
		w.silent(msgs, time.Minute)
		first["a1"].Ack()
		rest := []string{(<-msgs).UUID}
		for id, m := range first {
			if id != "a1" {
				m.Ack()
				rest = append(rest, (<-msgs).UUID)
			}
			if len(rest) == 2 {
				break
			}
		}
		require.ElementsMatch(w, []string{"a2", "d1"}, rest[:2])
	})
}

func TestNackedHoldsUpItsKeyAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		msgs := w.subscribe(sub)
		w.publish("a1")
		(<-msgs).Nack()
		w.publish("a2", "b1")
		var ids []string
		for range 3 {
			m := <-msgs
			ids = append(ids, m.UUID)
			m.Ack()
		}
		require.Equal(w, []string{"b1", "a1", "a2"}, ids)
	})
}

func TestMessageContext(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
		defer cancel()
		sub := w.subscriber()
		msgs, err := sub.Subscribe(ctx, "orders")
		require.NoError(w, err)
		w.publish("a", "b", "c")
		a, b := <-msgs, <-msgs
		require.Equal(w, "value", a.Context().Value(key{}))
		require.Nil(w, transport.AttemptFrom(a.Context()), "middleware works in place")
		a.Ack()
		<-a.Context().Done()
		b.Nack()
		<-b.Context().Done()
		c := <-msgs
		cancel()
		synctest.Wait()
		require.NoError(w, c.Context().Err(), "it may be finished")
		c.Ack()
		_, open := <-msgs
		require.False(w, open)
		require.Zero(w, w.left(2))
	})
}

// left counts what the group still has to get, and checks how many were acked.
func (w *world) left(acked int64) int64 {
	w.Helper()
	require.Equal(w, acked, w.broker.Acked("orders", "charge"))
	d, err := w.tr.Depth(context.Background(), "orders", "charge")
	require.NoError(w, err)
	return d.Held
}

func TestCloseLetsWorkFinish(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		msgs := w.subscribe(sub)
		w.publish("a")
		m := <-msgs
		closed := make(chan error, 1)
		go func() { closed <- sub.Close() }()
		<-time.After(4 * time.Second)
		require.NoError(w, m.Context().Err())
		m.Ack()
		require.NoError(w, <-closed)
		require.Zero(w, w.left(1))
		_, err := sub.Subscribe(context.Background(), "orders")
		require.ErrorIs(w, err, transport.ErrClosed)
	})
}

func TestCloseReturnsThoughNobodyAnswers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		msgs := w.subscribe(sub)
		w.publish("a", "b")
		m := <-msgs // and nobody takes the other
		began := time.Now()
		require.NoError(w, sub.Close())
		require.Less(w, time.Since(began), 7*time.Second)
		require.ErrorIs(w, context.Cause(m.Context()), transport.ErrShutdown)
		_, open := <-msgs
		require.False(w, open)
		m.Ack() // too late

		again := map[string]bool{}
		msgs = w.subscribe(w.subscriber())
		for range 2 {
			m := <-msgs
			again[m.UUID] = true
			m.Ack()
		}
		require.Equal(w, map[string]bool{"a": true, "b": true}, again)
	})
}

func TestSubscribeWithoutABroker(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		remove := w.broker.Inject(memory.Fault{Op: memory.OpOpenConsumer, Err: errors.New("connection refused")})
		sub := w.subscriber()
		_, err := sub.Subscribe(context.Background(), "orders")
		require.ErrorContains(w, err, `subscribe to topic "orders": the broker could not be reached in time: `)
		require.ErrorContains(w, err, "connection refused")

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = sub.Subscribe(ctx, "orders")
		require.ErrorIs(w, err, context.DeadlineExceeded)

		ended := make(chan error, 1)
		go func() {
			_, err := sub.Subscribe(context.Background(), "orders")
			ended <- err
		}()
		synctest.Wait()
		require.NoError(w, sub.Close())
		require.ErrorIs(w, <-ended, transport.ErrClosed)
		remove()
	})
}

func TestSubscribeRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		sub.Topology = transport.TopologyVerify
		began := time.Now()
		_, err := sub.Subscribe(context.Background(), "orders")
		require.True(w, transport.Refused(err), err)
		require.Zero(w, time.Since(began))
		require.True(w, transport.Refused(sub.SubscribeInitialize("orders")))
		for want, change := range map[string]func(*pubsub.Subscriber){
			"retry multiplier 0.5": func(s *pubsub.Subscriber) { s.Backoff.Multiplier = 0.5 },
			`order "random"`:       func(s *pubsub.Subscriber) { s.Order = "random" },
		} {
			sub := w.subscriber()
			change(sub)
			_, err := sub.Subscribe(context.Background(), "orders")
			require.ErrorContains(w, err, want)
		}
	})
}

// A connection that is lost is found again, and what was in flight comes again.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		msgs := w.subscribe(w.subscriber())
		w.publish("a")
		m := <-msgs
		w.broker.Cut(errors.New("reset"), func(transport.ConsumerConfig) bool { return true })
		<-m.Context().Done()
		require.ErrorIs(w, context.Cause(m.Context()), transport.ErrRevoked)
		m.Ack()
		m = <-msgs
		require.Equal(w, "a", m.UUID)
		m.Ack()
		w.silent(msgs, time.Hour)
	})
}

func TestSubscribeInitializeKeepsWhatIsPublishedThen(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		sub.Start = transport.StartLatest
		w.publish("before")
		require.NoError(w, sub.SubscribeInitialize("orders"))
		w.publish("after")
		m := <-w.subscribe(sub)
		require.Equal(w, "after", m.UUID)
		m.Ack()
	})
}

func TestPublisherIsHonest(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		require.NoError(w, w.pub.Publish("orders"))
		for _, op := range []memory.Op{memory.OpOpenProducer, memory.OpPublish} {
			w.broker.Inject(memory.Fault{Op: op, Times: 1, Err: errors.New("no")})
			err := w.pub.Publish("orders", message.NewMessage("a", nil))
			require.ErrorContains(w, err, `publish to topic "orders": `)
		}
		w.broker.Inject(memory.Fault{Op: memory.OpPublish, Times: 1, Match: func(m *message.Message) bool { return m.UUID == "b" }, Err: errors.New("too large"), Permanent: true})
		err := w.pub.Publish("orders", message.NewMessage("a", nil), message.NewMessage("b", nil))
		partly, ok := errors.AsType[*transport.PublishError](err)
		require.True(w, ok, err)
		require.Equal(w, 1, partly.Failed[0].Index)

		remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Hang: true})
		began := time.Now()
		require.ErrorIs(w, w.pub.Publish("orders", message.NewMessage("c", nil)), context.DeadlineExceeded)
		require.Equal(w, 30*time.Second, time.Since(began))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m := message.NewMessage("d", nil)
		m.SetContext(ctx)
		require.ErrorIs(w, w.pub.Publish("orders", m), context.Canceled)
		remove()

		require.NoError(w, w.pub.Close())
		require.NoError(w, w.pub.Close())
		require.ErrorIs(w, w.pub.Publish("orders", message.NewMessage("e", nil)), transport.ErrClosed)
	})
}

// Many subscriptions of one subscriber are members of one group.
func TestSubscriptionsShare(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.subscriber()
		one, two := w.subscribe(sub), w.subscribe(sub)
		seen := map[string]int{}
		for i := range 40 {
			w.publish(fmt.Sprint("m", i+100))
		}
		for range 40 {
			var m *message.Message
			select {
			case m = <-one:
			case m = <-two:
			}
			seen[m.UUID]++
			m.Ack()
		}
		require.Len(w, seen, 40)
		w.silent(one, time.Minute)
		w.silent(two, time.Minute)
	})
}
