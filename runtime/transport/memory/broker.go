package memory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// ErrFull is why a message was not taken: its topic holds
// [Options.MaxMessages] that some group has not settled. It is worth trying again.
var ErrFull = errors.New("topic is full")

// Broker holds topics, groups and their messages. Several [Transport] values,
// each in the place of one worker's connection, may share it.
type Broker struct {
	name string
	opts Options
	// incarnation keeps ids made from coordinates apart from those of an
	// earlier broker, whose offsets were the same.
	incarnation string

	mu        sync.Mutex
	topics    map[string]*topic
	groups    map[string]*group
	faults    []*fault
	observers []*func(Event)
}

// NewBroker makes an empty broker.
func NewBroker(o Options) *Broker {
	return &Broker{
		opts:        o.withDefaults(),
		incarnation: fmt.Sprintf("%08x", rand.Uint32()), //nolint:gosec // tells two brokers apart, guards nothing
		topics:      map[string]*topic{},
		groups:      map[string]*group{},
	}
}

// Transport opens the broker to one worker.
func (b *Broker) Transport() *Transport { return &Transport{b: b} }

// topic and its partitions. Everything below is guarded by Broker.mu.
type topic struct {
	name  string
	parts []*partition
	held  int // messages in all partitions
	turn  int // of the next message without a key
}

// partition is a log.
type partition struct {
	store

	topic   *topic
	number  int32
	cursors []*cursor // one for each group
}

func (b *Broker) topic(name string) *topic {
	t := b.topics[name]
	if t == nil {
		t = &topic{name: name, parts: make([]*partition, b.opts.Partitions)}
		for i := range t.parts {
			t.parts[i] = &partition{topic: t, number: int32(i)}
		}
		b.topics[name] = t
	}
	return t
}

// declare makes the topic and, with a group name, the group's place in it.
func (b *Broker) declare(topicName, groupName string, start transport.Start) {
	t := b.topic(topicName)
	if groupName == "" {
		return
	}
	g := b.groups[groupName]
	if g == nil {
		g = &group{broker: b, name: groupName, cursors: map[string][]*cursor{}, sessions: map[string]uint64{}}
		b.groups[groupName] = g
	}
	if g.cursors[topicName] != nil {
		return
	}
	for _, p := range t.parts {
		c := newCursor(g, p, start, b.opts.Log)
		p.cursors = append(p.cursors, c)
		g.cursors[topicName] = append(g.cursors[topicName], c)
	}
}

// missing names what is not declared; empty means that all is there.
func (b *Broker) missing(topicName, groupName string) string {
	switch {
	case b.topics[topicName] == nil:
		return fmt.Sprintf("topic %q", topicName)
	case groupName != "" && b.cursors(topicName, groupName) == nil:
		return fmt.Sprintf("group %q of topic %q", groupName, topicName)
	}
	return ""
}

// cursors are a group's places in a topic, by partition; none if either is missing.
func (b *Broker) cursors(topicName, groupName string) []*cursor {
	if g := b.groups[groupName]; g != nil {
		return g.cursors[topicName]
	}
	return nil
}

// append takes a message in, or tells that there is no room.
func (b *Broker) append(t *topic, m *message.Message, now time.Time) (*partition, bool) {
	if t.held >= b.opts.MaxMessages {
		for _, p := range t.parts {
			p.trim(0)
		}
		if t.held >= b.opts.MaxMessages {
			return nil, false
		}
	}
	p, id := t.partition(m.Metadata.Get(transport.KeyHeader)), m.UUID
	if id == "" && b.opts.Capabilities.StableCoordinates {
		id = fmt.Sprintf("memory:%s:%s/%s/%d/%d", b.name, b.incarnation, t.name, p.number, p.end())
	}
	p.append(id, m, now)
	t.held++
	return p, true
}

func (t *topic) partition(key string) *partition {
	if key == "" {
		t.turn++
		return t.parts[t.turn%len(t.parts)]
	}
	h := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return t.parts[int(h)%len(t.parts)]
}

// trim lets go of what every group has settled, but for the last keep.
func (p *partition) trim(keep int) {
	if len(p.cursors) == 0 {
		return
	}
	low := p.cursors[0].floor
	for _, c := range p.cursors[1:] {
		low = min(low, c.floor)
	}
	n := int(low-p.base) - keep
	if n <= 0 {
		return
	}
	for _, c := range p.cursors {
		k := min(n, len(c.slots))
		c.slots = c.slots[k:]
		for offset := p.base; len(c.failures) > 0 && offset < p.base+int64(n); offset++ {
			delete(c.failures, offset)
		}
	}
	p.drop(n)
	p.topic.held -= n
}
