package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"

	"github.com/leat-io/leat/benchmarks/harness"
)

// What all cases have in common.
const (
	topic       = "bench"
	keys        = 1000
	concurrency = 256
	prefetch    = 2048
	timeout     = 20 * time.Second
	// slice is how many messages are built beforehand: with more, the garbage
	// collector would mostly look through those.
	slice = 100_000
)

var payload = []byte(`{"id":"o-1842","customer":"c-77","total":1999,"currency":"EUR"}`)

// newMessage is message i: one of the keys, and so many headers beside it.
func newMessage(i, headers int) *message.Message {
	m := message.NewMessage("id-"+strconv.Itoa(i), payload)
	m.Metadata[transport.KeyHeader] = "key-" + strconv.Itoa(i%keys)
	for h := range headers {
		m.Metadata["header-"+strconv.Itoa(h)] = "value"
	}
	return m
}

// policy is how the engine runs in every case. Its chain is empty.
func policy() transport.Policy {
	return transport.Policy{Group: topic, Concurrency: concurrency, Prefetch: prefetch, Order: transport.OrderKey}
}

// withDefaultChain has the standard chain, and dedup in it where there is a store.
func withDefaultChain(p transport.Policy, store middleware.DedupStore) (transport.Policy, error) {
	p.Timeout = timeout
	p = p.Defaults(topic, memory.Capabilities())
	if store != nil {
		dedup, err := middleware.Dedup(middleware.DedupOptions{Store: store})
		if err != nil {
			return p, err
		}
		p.Dedup = dedup
	}
	p.Middleware = middleware.Default(p)
	return p, nil
}

// engine measures the engine alone, on messages that are there before it
// starts, from the first Receive to the return of the last handler.
func engine(headers int, chain func() (transport.Policy, error)) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		for done := 0; done < n; done += slice {
			p, err := chain()
			if err != nil {
				return err
			}
			t := memory.New(topic, memory.Options{MaxMessages: slice})
			if err := consume(m, t, p, min(slice, n-done), headers, func(*message.Message) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}
}

// noEngine is what the messages of the engine's cases cost without it: one
// goroutine takes a quarter of the prefetch at a time, prepares each delivery
// and settles them.
func noEngine(headers int, prepare func(*transport.Delivery)) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		for done := 0; done < n; done += slice {
			t := memory.New(topic, memory.Options{MaxMessages: slice})
			if err := receiveAndSettle(m, t, min(slice, n-done), headers, prepare); err != nil {
				return err
			}
		}
		return nil
	}
}

func receiveAndSettle(m *harness.Meter, t transport.Transport, n, headers int, prepare func(*transport.Delivery)) error {
	ctx := context.Background()
	if err := fill(ctx, t, n, headers); err != nil {
		return err
	}
	m.Start()
	c, err := t.OpenConsumer(ctx, transport.ConsumerConfig{Name: topic, Topics: []string{topic}, Group: topic, Base: ctx})
	if err != nil {
		return err
	}
	batch := make([]transport.Settlement, 0, prefetch/4)
	for left := n; left > 0; left -= len(batch) {
		ds, err := c.Receive(ctx, prefetch/4, 16<<20)
		if err != nil {
			return err
		}
		batch = batch[:0]
		for _, d := range ds {
			prepare(d)
			batch = append(batch, transport.Settlement{Delivery: d, Verdict: transport.Ack})
		}
		if err := c.Settle(ctx, batch); err != nil {
			return err
		}
	}
	m.Stop()
	if err := c.Close(ctx); err != nil {
		return err
	}
	return t.Close(ctx)
}

// consume publishes n messages to t, has an engine handle them and measures
// that. It fails if one of them was not settled, or handled more than once.
func consume(m *harness.Meter, t transport.Transport, p transport.Policy, n, headers int, handle func(*message.Message) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := fill(ctx, t, n, headers); err != nil {
		return err
	}
	var handled atomic.Int64
	all := make(chan struct{})
	r := runtime.NewRouter(runtime.Options{})
	err := r.Consume(topic, t, topic, func(msg *message.Message) ([]*message.Message, error) {
		err := handle(msg)
		if handled.Add(1) == int64(n) {
			close(all)
		}
		return nil, err
	}, p)
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	m.Start()
	go func() { ran <- r.Run(ctx) }()
	select {
	case <-all:
	case err := <-ran:
		return fmt.Errorf("engine ended early: %w", err)
	}
	m.Stop()
	cancel()
	if err := <-ran; err != nil {
		return err
	}
	if h := handled.Load(); h != int64(n) {
		return fmt.Errorf("%d runs of the handler for %d messages", h, n)
	}
	left, err := t.Depth(context.Background(), topic, topic)
	if err != nil {
		return err
	}
	if left.Ready+left.Delayed+left.Held > 0 {
		return fmt.Errorf("not settled: %+v", left)
	}
	return t.Close(context.Background())
}

// fill publishes messages before anything is measured.
func fill(ctx context.Context, t transport.Transport, n, headers int) error {
	d := transport.Declaration{Topic: topic, Group: topic}
	if err := t.Declare(ctx, transport.TopologyDeclare, d); err != nil {
		return err
	}
	p, err := t.OpenProducer(ctx)
	if err != nil {
		return err
	}
	const batch = 1000
	for at := 0; at < n; at += batch {
		msgs := make([]*message.Message, min(batch, n-at))
		for i := range msgs {
			msgs[i] = newMessage(at+i, headers)
		}
		if err := p.Publish(ctx, topic, msgs...); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}
