package memory

import (
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Event is something that has happened in the broker.
type Event struct {
	Kind      EventKind
	Topic     string
	Partition int32
	Offset    int64
	ID        string
	Group     string            // empty for Published
	Verdict   transport.Verdict // of Settled
}

// EventKind is the kind of an [Event].
type EventKind uint8

// Values of EventKind.
const (
	Published EventKind = iota + 1
	Delivered
	Settled
)

// Observe has fn called at every event, in the order they happen. It runs
// inside the broker and must not call it.
func (b *Broker) Observe(fn func(Event)) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observers = append(b.observers, &fn)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.observers = without(b.observers, &fn)
	}
}

func (b *Broker) observe(kind EventKind, c *cursor, offset int64, id string, v transport.Verdict) {
	for _, fn := range b.observers {
		(*fn)(Event{Kind: kind, Topic: c.part.topic.name, Partition: c.part.number, Offset: offset, ID: id, Group: c.group.name, Verdict: v})
	}
}

// observePublished tells of the last message of p.
func (b *Broker) observePublished(p *partition) {
	for _, fn := range b.observers {
		offset := p.end() - 1
		id, _ := p.id(p.at(offset))
		(*fn)(Event{Kind: Published, Topic: p.topic.name, Partition: p.number, Offset: offset, ID: id})
	}
}

// Messages copies what a topic holds, by partition and offset, settled
// messages that are still kept among them.
func (b *Broker) Messages(topicName string) []*message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topicName]
	if t == nil {
		return nil
	}
	out := make([]*message.Message, 0, t.held)
	for _, p := range t.parts {
		for i := range p.records {
			r := &p.records[i]
			id, text := p.id(r)
			hs := make(transport.Headers, r.headers)
			headers(hs, text)
			out = append(out, &message.Message{UUID: id, Payload: slices.Clone(p.payload(r)), Metadata: hs.Map()})
		}
	}
	return out
}

// Handed counts how often a group was handed each message of a topic that is
// still kept, by id.
func (b *Broker) Handed(topicName, groupName string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := map[string]int{}
	for _, c := range b.cursors(topicName, groupName) {
		for i, s := range c.slots {
			if s.times > 0 {
				id, _ := c.part.id(&c.part.records[i])
				n[id] += int(s.times)
			}
		}
	}
	return n
}

// Acked counts what a group of a topic is done with.
func (b *Broker) Acked(topicName, groupName string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n int64
	for _, c := range b.cursors(topicName, groupName) {
		n += c.settled
	}
	return n
}
