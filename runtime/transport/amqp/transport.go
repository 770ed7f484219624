// Package amqp has RabbitMQ as a broker.
//
// A topic is a durable fanout exchange, a group of it a durable quorum queue
// bound to it. A consumer is a channel on a connection of its own: its prefetch
// is the engine's, many handlers run at once on it, and what it holds is given
// back by closing it, in order. Messages have Watermill's format.
package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Transport is one broker. It connects when it is first used: once to declare
// and look, once to publish, and once for each consumer, so that an alarm,
// which stops those who publish, stops no ack.
type Transport struct {
	o      Options
	target target

	pace     pacer
	troubles troubles
	control  *link
	outgoing *link
	sessions atomic.Uint64

	mu        sync.Mutex
	closed    bool
	mode      transport.Topology
	members   map[*subscription]struct{}            // open
	bound     map[binding]bool                      // by this process
	deleted   map[string]int                        // how often a queue was gone under its consumer
	delays    map[string]map[time.Duration]struct{} // delay queues that are there, by queue
	lookAgain map[string]time.Time                  // for those that are not
}

var _ transport.Transport = (*Transport)(nil)

// Open makes the transport. Nothing is connected yet; the error is about o alone.
func Open(o Options) (*Transport, error) {
	target, err := o.complete()
	if err != nil {
		return nil, err
	}
	t := &Transport{
		o: o, target: target,
		members: make(map[*subscription]struct{}), bound: make(map[binding]bool),
		deleted: make(map[string]int), lookAgain: make(map[string]time.Time), delays: make(map[string]map[time.Duration]struct{}),
	}
	t.control, t.outgoing = newLink(t, "control"), newLink(t, "publish")
	return t, nil
}

// Kind is "amqp".
func (t *Transport) Kind() string { return "amqp" }

// Capabilities of RabbitMQ, as configured.
func (t *Transport) Capabilities() transport.Capabilities {
	c := transport.Capabilities{
		KeyOrder:      transport.ScopeWorker,
		Attempts:      transport.KeepAfterDelay,
		DurableDelay:  true,
		Depth:         true,
		Browse:        transport.BrowseTakes,
		Networked:     true,
		Durable:       true,
		MaxNameLength: transport.MaxName,
		DerivesNames:  true,
		GroupTool:     "rabbitmqctl list_queues name messages consumers",
		NeedsReader:   t.o.Unrouted != drop,
		AckTimeout:    t.o.ConsumerTimeout,
	}
	if t.o.SingleActive {
		c.KeyOrder = transport.ScopeGroup
	}
	if t.o.ReadOnly {
		c.DurableDelay, c.Attempts = false, transport.KeepProcess
	}
	return c
}

// declares tells whether exchanges and queues may be made.
func (t *Transport) declares() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mode == "" || t.mode == transport.TopologyDeclare
}

func (t *Transport) open() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("amqp broker: %w", transport.ErrClosed)
	}
	return nil
}

// Close gives up the connections.
func (t *Transport) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	return errors.Join(t.outgoing.close(ctx), t.control.close(ctx))
}
