package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
)

// theirs is a Watermill member of the group; stop is its clean end.
func (w *world) theirs(handle func(id, by string)) (stop func()) {
	w.t.Helper()
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = -2 // the oldest
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Heartbeat.Interval = session / 6
	sub, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: w.o.Brokers, Unmarshaler: wmkafka.DefaultMarshaler{}, ConsumerGroup: w.group, OverwriteSaramaConfig: config,
	}, wm.NopLogger{})
	require.NoError(w.t, err)
	msgs, err := sub.Subscribe(context.Background(), w.topic)
	require.NoError(w.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range msgs {
			handle(m.UUID, "watermill")
			m.Ack()
		}
	}()
	return sync.OnceFunc(func() {
		require.NoError(w.t, sub.Close())
		<-done
	})
}

// ours is a member on this transport, opened anew where it fails.
func (w *world) ours(handle func(id, by string)) (stop func()) {
	w.t.Helper()
	tr := w.connect()
	going, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for going.Err() == nil {
			c, err := tr.OpenConsumer(going, transport.ConsumerConfig{
				Topics: []string{w.topic}, Group: w.group, Prefetch: 100, PrefetchBytes: 1 << 20, Base: context.Background(),
			})
			if err != nil {
				continue
			}
			w.consume(going, c, handle)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(going), 10*time.Second)
			_ = c.Close(ctx) // what it could not commit comes again
			cancel()
		}
	}()
	return sync.OnceFunc(func() { end(); <-done })
}

func (w *world) consume(ctx context.Context, c transport.Consumer, handle func(id, by string)) {
	for {
		ds, err := c.Receive(ctx, 10, 1<<20)
		if err != nil {
			return
		}
		batch := make([]transport.Settlement, len(ds))
		for i, d := range ds {
			handle(d.ID, "leat")
			batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
		}
		if err := c.Settle(context.WithoutCancel(ctx), batch); err != nil {
			return
		}
	}
}

// TestRollingToLeatAndBack: a live group moves from Watermill to Leat and back,
// one member after the other, under load, and loses nothing.
func TestRollingToLeatAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 4)
	w.o.Balancers = []string{"cooperative-sticky", "range"}
	var mu sync.Mutex
	handled, by := map[string]int{}, map[string]int{}
	handle := func(id, who string) {
		mu.Lock()
		defer mu.Unlock()
		handled[id]++
		by[who]++
	}

	p := w.producer()
	publishing, stop := context.WithCancel(t.Context())
	published := make(chan []string)
	go func() {
		var ids []string
		for publishing.Err() == nil {
			msgs := make([]*message.Message, 20)
			for i := range msgs {
				id := fmt.Sprint("m-", len(ids)+i)
				msgs[i] = message.NewMessage(id, nil)
				msgs[i].Metadata.Set(transport.KeyHeader, id)
			}
			if err := p.Publish(context.WithoutCancel(publishing), w.topic, msgs...); err != nil {
				panic(err)
			}
			for _, m := range msgs {
				ids = append(ids, m.UUID)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-publishing.Done():
			}
		}
		published <- ids
	}()
	progress := func(who string, n int) {
		mu.Lock()
		from := by[who]
		mu.Unlock()
		eventually(t, who+" goes on", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return by[who] >= from+n
		})
	}

	a, b := w.theirs(handle), w.theirs(handle)
	progress("watermill", 100)
	c := w.ours(handle)
	defer c()
	a()
	d := w.ours(handle)
	defer d()
	b()
	progress("leat", 300)
	a = w.theirs(handle)
	c()
	b = w.theirs(handle)
	d()
	progress("watermill", 100)
	stop()
	ids := <-published
	eventually(t, "all are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == len(ids)
	})
	a()
	b()
	twice := 0
	for _, n := range handled {
		twice += n - 1
	}
	t.Logf("%d messages, %v, %d times again", len(ids), by, twice)
}

// TestWatermillReadsUs and is read.
func TestWatermillReadsUs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	pub, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: w.o.Brokers, Marshaler: wmkafka.DefaultMarshaler{}}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, pub.Close()) }()
	m := message.NewMessage("from watermill", []byte("x"))
	m.Metadata.Set("name", "value")
	require.NoError(t, pub.Publish(w.topic, m))
	d := w.receive(w.join(w.connect()), 1)[0]
	require.Equal(t, "from watermill", d.ID)
	require.Equal(t, transport.Headers{{Name: "name", Value: "value"}}, d.Headers)

	m = message.NewMessage("from leat", []byte("y"))
	m.Metadata.Set("name", "other")
	m.Metadata.Set(transport.KeyHeader, "k")
	require.NoError(t, w.producer().Publish(within(t), w.topic, m))
	w.group += "-theirs"
	got := make(chan string, 10)
	stop := w.theirs(func(id, _ string) { got <- id })
	defer stop()
	require.Equal(t, "from watermill", <-got)
	select {
	case id := <-got:
		require.Equal(t, "from leat", id)
	case <-within(t).Done():
		require.NoError(t, errors.New("Watermill does not get it"))
	}
}
