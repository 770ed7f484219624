package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"

	"github.com/leat-io/leat/benchmarks/harness"
)

// load is what a worker of Leat has to do. The zero value is the default
// chain and a handler that does nothing, by key and 256 at once.
type load struct {
	bare   bool // no middleware
	slots  int  // handlers at once; 0: 256
	handle func(*message.Message) error
	group  string          // empty: the topic's name
	order  transport.Order // empty: by key
}

func (l load) policy() (transport.Policy, error) {
	p := policy()
	if l.slots > 0 {
		p.Concurrency, p.Prefetch = l.slots, 8*l.slots
	}
	if l.group != "" {
		p.Group = l.group
	}
	if l.order != "" {
		p.Order = l.order
	}
	if l.bare {
		return p, nil
	}
	return withDefaultChain(p, nil)
}

// drain measures n messages in the middle of times·n, which the topic has.
// With times 1 it fails if one of them was not settled.
func (l load) drain(m *harness.Meter, t transport.Transport, name string, n, times int) error {
	ctx, cancel := context.WithCancel(background())
	defer cancel()
	p, err := l.policy()
	if err != nil {
		return err
	}
	handle := l.handle
	if handle == nil {
		handle = noOp
	}
	r := runtime.NewRouter(runtime.Options{})
	c := newCount(m, n, times)
	err = r.Consume(topic, t, name, func(msg *message.Message) ([]*message.Message, error) {
		err := handle(msg)
		c.add(1)
		return nil, err
	}, p)
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	if err := c.await(ran); err != nil {
		return err
	}
	cancel()
	err = <-ran // what is handled is acked by then
	c.settled()
	if err == nil && times == 1 {
		var left transport.Depth
		left, err = t.Depth(background(), name, p.Group)
		if err == nil && left.Ready+left.Delayed+left.Held > 0 {
			err = fmt.Errorf("not settled: %+v", left)
		}
	}
	return errors.Join(err, t.Close(background()))
}

// publish measures n messages, from so many goroutines with batch in a Publish.
func publish(m *harness.Meter, t transport.Transport, name string, n, goroutines, batch int) error {
	ctx := background()
	p, err := t.OpenProducer(ctx)
	if err != nil {
		return err
	}
	err = p.Publish(ctx, name, kibibytes(0, 1)...) // it connects
	if err == nil {
		err = publishRaw(m, kibibytes(1, n), goroutines, batch, func(msgs []*message.Message) error { return p.Publish(ctx, name, msgs...) })
	}
	return errors.Join(err, p.Close(ctx), t.Close(ctx))
}
