package memory

import (
	"context"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Op is a call to the broker that a [Fault] can strike.
type Op uint8

// Values of Op.
const (
	OpDeclare Op = iota + 1
	OpOpenConsumer
	OpOpenProducer
	OpPublish
	OpReceive
	OpSettle
	OpDepth
	OpClose // of a consumer
)

// Fault is trouble on demand.
type Fault struct {
	Op Op
	// Topic and Group narrow it to calls that concern them, where the call
	// names them: Receive, Settle and Close have only a group, Publish only a topic.
	Topic string
	Group string
	// Times is how many calls it strikes; 0 means until it is removed.
	Times int
	// Err is what the calls return. Mark it with [transport.Refuse] for a
	// broker that says no.
	Err error
	// Hang holds the calls until their ctx ends or the fault is removed; then
	// they go on, or return Err if there is one.
	Hang bool
	// Late has Publish and Settle do their work before the fault strikes: a
	// lost confirmation.
	Late bool
	// Match has a Publish fail for just the messages it is true for, with a
	// [*transport.PublishError]; the rest are published.
	Match func(*message.Message) bool
	// Permanent goes with Match.
	Permanent bool
}

type fault struct {
	Fault
	removed chan struct{}
}

// Inject sets a fault, for calls that begin later and for a Receive that
// waits. The first one set that fits a call strikes it.
func (b *Broker) Inject(f Fault) (remove func()) {
	set := &fault{Fault: f, removed: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, set)
	for _, g := range b.groups {
		for _, c := range g.members {
			c.wake()
		}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		select {
		case <-set.removed:
		default:
			close(set.removed)
			b.faults = without(b.faults, set)
		}
	}
}

// match takes one strike of the first fault that fits; nil if none does.
func (b *Broker) match(op Op, topicName, groupName string) *fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, f := range b.faults {
		if f.Op != op || f.Topic != "" && f.Topic != topicName || f.Group != "" && f.Group != groupName {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				b.faults = slices.Delete(b.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

// fail is one call's fault, if there is one.
func (b *Broker) fail(ctx context.Context, op Op, topicName, groupName string) error {
	if f := b.match(op, topicName, groupName); f != nil {
		return f.strike(ctx)
	}
	return nil
}

func (f *fault) before() bool { return f != nil && !f.Late && f.Match == nil }

func (f *fault) after() bool { return f != nil && f.Late && f.Match == nil }

func (f *fault) hits(m *message.Message) bool { return f != nil && f.Match != nil && f.Match(m) }

func (f *fault) strike(ctx context.Context) error {
	if f.Hang {
		select {
		case <-f.removed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.Err
}

// Cut breaks the connections of consumers, all of them or those that which
// says: Receive returns err, assignments are revoked, and what was held comes
// again to whoever reads the group next. It is what a crash looks like from
// the broker.
func (b *Broker) Cut(err error, which func(transport.ConsumerConfig) bool) {
	b.mu.Lock()
	var cut []*consumer
	for _, g := range b.groups {
		for _, c := range g.members {
			if which == nil || which(c.cfg) {
				cut = append(cut, c)
			}
		}
	}
	b.mu.Unlock()
	for _, c := range cut {
		c.end(err, false)
	}
}

// Rebalance takes a partition from its owner, which may drain it first, and
// gives it to the member that has the fewest.
func (b *Broker) Rebalance(groupName, topicName string, partition int32) {
	spells := b.spells(groupName, topicName, partition, func(s *spell) bool {
		fresh := !s.leaving && !s.over
		s.leaving = true
		return fresh
	})
	b.leave(spells)
}

// Revoke takes a partition from its owner at once.
func (b *Broker) Revoke(groupName, topicName string, partition int32) {
	spells := b.spells(groupName, topicName, partition, func(s *spell) bool {
		fresh := !s.over
		s.over = true
		return fresh
	})
	b.end(spells, false)
}

func (b *Broker) spells(groupName, topicName string, partition int32, mark func(*spell) bool) []*spell {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*spell
	for _, c := range b.cursors(topicName, groupName) {
		for _, s := range c.spells {
			if c.part.number == partition && mark(s) {
				found = append(found, s)
			}
		}
	}
	return found
}

// Duplicate hands a delivery out once more while it is held, and tells
// whether it is.
func (b *Broker) Duplicate(groupName, topicName string, partition int32, offset int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.cursors(topicName, groupName) {
		if c.part.number == partition && offset >= c.floor && offset < c.next && c.slot(offset).state == held {
			c.again = append(c.again, offset)
			c.wake()
			return true
		}
	}
	return false
}
