package memory

import (
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// group is one logical reader of topics. Its members share the partitions.
type group struct {
	broker   *Broker
	name     string
	cursors  map[string][]*cursor // by topic, one for each partition
	members  []*consumer
	sessions map[string]uint64 // connections so far, by consumer name
}

// spell is one member's turn at one cursor.
//
// It ends in the order that nobody can see two owners: over is set, so that
// nothing more is handed out or settled; the assignment is revoked, outside
// of the lock since that calls the engine; and only then its messages go back
// to the cursor and the cursor to its next owner.
type spell struct {
	cursor   *cursor
	number   uint32 // of the cursor's spells, from 1
	consumer *consumer
	a        *transport.Assignment
	heir     *consumer // the member it is to move to, while leaving
	paused   bool
	leaving  bool
	over     bool
	held     int
	tag      int64 // the last one, where coordinates are not stable
	drain    *time.Timer
}

func (c *consumer) begin(cur *cursor) {
	number := cur.part.number
	s := &spell{cursor: cur, consumer: c, a: transport.NewAssignment(c.cfg.Base, cur.part.topic.name, number)}
	cur.begin(s, c.cfg.Span)
	c.spells = append(c.spells, s)
	c.wake()
}

// balance gives partitions without an owner to the members that have the
// fewest, and returns the spells that are to leave so that no member has two
// more than another.
func (g *group) balance(topicName string, shared bool) []*spell {
	members := slices.DeleteFunc(slices.Clone(g.members), func(c *consumer) bool {
		return !slices.Contains(c.cfg.Topics, topicName)
	})
	if len(members) == 0 {
		return nil
	}
	if shared {
		g.share(topicName, members)
		return nil
	}
	load := make(map[*consumer]int, len(members))
	for _, cur := range g.cursors[topicName] {
		for _, s := range cur.spells {
			if s.heir != nil && s.heir.err == nil {
				load[s.heir]++
			} else {
				load[s.consumer]++
			}
		}
	}
	byLoad := func(a, b *consumer) int { return load[a] - load[b] }
	for _, cur := range g.cursors[topicName] {
		if len(cur.spells) == 0 {
			m := slices.MinFunc(members, byLoad)
			m.begin(cur)
			load[m]++
		}
	}
	var leave []*spell
	for {
		most, least := slices.MaxFunc(members, byLoad), slices.MinFunc(members, byLoad)
		if load[most]-load[least] <= 1 {
			return leave
		}
		i := slices.IndexFunc(most.spells, func(s *spell) bool {
			return s.cursor.part.topic.name == topicName && !s.leaving && !s.over
		})
		if i < 0 {
			return leave
		}
		s := most.spells[i]
		s.leaving, s.heir = true, least
		load[most]--
		load[least]++
		leave = append(leave, s)
	}
}

// share lets every member take from every partition.
func (g *group) share(topicName string, members []*consumer) {
	for _, cur := range g.cursors[topicName] {
		for _, m := range members {
			if !slices.ContainsFunc(cur.spells, func(s *spell) bool { return s.consumer == m }) {
				m.begin(cur)
			}
		}
	}
}

// leave begins the end of spells that are marked so. They are over when
// nothing is held any more, or when the drain has run out of time.
func (b *Broker) leave(spells []*spell) {
	var drained []*spell
	for _, s := range spells {
		s.a.Leave()
		b.mu.Lock()
		switch {
		case s.over:
		case s.held == 0:
			s.over = true
			drained = append(drained, s)
		default:
			s.drain = time.AfterFunc(b.opts.RebalanceDrain, func() { b.expire(s) })
		}
		b.mu.Unlock()
	}
	b.end(drained, true)
}

func (b *Broker) expire(s *spell) {
	b.mu.Lock()
	was := s.over
	s.over = true
	b.mu.Unlock()
	if !was {
		b.end([]*spell{s}, true)
	}
}

// end completes the end of spells that are over, and gives what they had to
// the members that are left.
func (b *Broker) end(spells []*spell, clean bool) {
	if len(spells) == 0 {
		return
	}
	for _, s := range spells {
		s.a.Revoke()
	}
	b.mu.Lock()
	for _, s := range spells {
		if s.drain != nil {
			s.drain.Stop()
		}
		s.cursor.giveBack(s, clean)
		s.cursor.spells = without(s.cursor.spells, s)
		s.consumer.spells = without(s.consumer.spells, s)
	}
	var leave []*spell
	for _, s := range spells {
		leave = append(leave, s.cursor.group.balance(s.cursor.part.topic.name, b.shared())...)
		s.cursor.wake()
	}
	b.mu.Unlock()
	b.leave(leave)
}

func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return y == x })
}

func (b *Broker) shared() bool { return b.opts.Capabilities.KeyOrder == transport.ScopeWorker }

// wake has the members that read the cursor look again.
func (c *cursor) wake() {
	for _, s := range c.spells {
		s.consumer.wake()
	}
}
