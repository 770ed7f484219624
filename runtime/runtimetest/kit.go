package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// Kit is the test's hold on a running worker. It is a testing.TB, for require
// and the like, and is used by the test's own goroutine alone.
//
// What the test does before a call of the kit happens before the attempts that
// begin in it, and those before what the test does next. So the fields of a fake
// that only the test sets need no lock; those that handlers set do, since
// several run at once.
type Kit struct {
	testing.TB
	*rig

	only string // consumer; empty: all
}

// Only is the kit for one consumer: what is published, expected or made to
// fail by it concerns that consumer alone.
func (k *Kit) Only(consumer string) *Kit {
	k.Helper()
	if _, ok := k.ledger.reader(consumer); !ok {
		k.Fatalf("runtimetest: there is no consumer %q", consumer)
	}
	return &Kit{k.TB, k.rig, consumer}
}

// Sent is a message that a test has published, for expectations about it.
type Sent struct {
	ID    string
	Topic string

	stories []*story
}

// Publish publishes v to a topic and returns at once, before anything is
// handled. v is encoded as handlers.Emit does it: []byte and json.RawMessage are
// the body, a *message.Message is sent as it is, all else as JSON. Messages
// without an id get "m1", "m2" and so on; publishing a *message.Message twice
// makes a duplicate.
//
// It goes to the broker whose consumers read the topic. A topic that nobody
// reads is an error.
func (k *Kit) Publish(topic string, v any, opts ...handlers.EmitOption) *Sent {
	k.Helper()
	m, err := encode(v)
	if err != nil {
		k.Fatalf("publish to %q: %v", topic, err)
	}
	for _, opt := range opts {
		opt(m)
	}
	readers := k.ledger.readersOf(topic, k.only)
	if len(readers) == 0 {
		k.Fatalf("publish to %q: no consumer reads it; there are: %s", topic, k.ledger.listReaders())
	}
	for _, r := range readers[1:] {
		if r.broker != readers[0].broker {
			k.Fatalf("publish to %q: consumers %q and %q read it from different brokers; use Only", topic, readers[0].consumer, r.consumer)
		}
	}
	if m.UUID == "" {
		k.sent++
		m.UUID = fmt.Sprintf("m%d", k.sent)
	}
	broker := readers[0].broker
	coordinates, err := publish(k.brokers[broker], topic, m)
	if err != nil {
		k.Fatalf("publish to %q: %v", topic, err)
	}
	return &Sent{ID: m.UUID, Topic: topic, stories: k.ledger.expect(broker, coordinates, topic, m.UUID)}
}

func encode(v any) (*message.Message, error) {
	m := &message.Message{Metadata: message.Metadata{}}
	switch v := v.(type) {
	case *message.Message:
		m.UUID, m.Payload = v.UUID, v.Payload
		maps.Copy(m.Metadata, v.Metadata)
	case []byte:
		m.Payload = v
	case json.RawMessage:
		m.Payload = message.Payload(v)
	default:
		body, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		m.Payload = body
	}
	return m, nil
}

// publish tells the coordinates that the message got.
func publish(b *memory.Broker, topic string, m *message.Message) (coordinates string, err error) {
	remove := b.Observe(func(e memory.Event) {
		if e.Kind == memory.Published && e.Topic == topic && e.ID == m.UUID {
			d := transport.Delivery{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset}
			coordinates = d.Coordinates()
		}
	})
	defer remove()
	ctx := context.Background()
	p, err := b.Transport().OpenProducer(ctx)
	if err != nil {
		return "", err
	}
	if err := p.Publish(ctx, topic, m); err != nil {
		return "", err
	}
	return coordinates, p.Close(ctx)
}

// Advance lets d of virtual time go by, and everything be done that falls due.
func (k *Kit) Advance(d time.Duration) {
	k.ledger.meet()
	<-time.After(d)
	synctest.Wait()
	k.ledger.meet()
}

// FailNext has the next n attempts end in err before their handlers are
// reached, as if the handlers had returned it.
func (k *Kit) FailNext(n int, err error) {
	k.ledger.write(func() { k.ledger.orders = append(k.ledger.orders, order{k.only, n, err}) })
}

// Status is what the worker tells of a consumer, once nothing runs any more.
func (k *Kit) Status(consumer string) runtime.Status {
	k.Helper()
	k.settle()
	all := k.router.Status()
	i := slices.IndexFunc(all, func(s runtime.Status) bool { return s.Consumer == consumer })
	if i < 0 {
		k.Fatalf("runtimetest: there is no consumer %q", consumer)
	}
	return all[i]
}

// Broker is the broker in memory that takes the place of an entry under
// brokers, or of the main one for "": for faults and lost connections.
func (k *Kit) Broker(entry string) *memory.Broker {
	k.Helper()
	b := k.brokers[entry]
	if b == nil {
		k.Fatalf("runtimetest: there is no broker %q; there are: %q", entry, slices.Sorted(maps.Keys(k.brokers)))
	}
	return b
}

// settle lets time go on until nothing runs.
func (k *Kit) settle() {
	k.Helper()
	if !k.await(k.quiet) {
		k.fail("attempts to come to an end", k.ledger.of(k.only, nil))
	}
}
