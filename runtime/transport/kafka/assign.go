package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// hooks hears what the client does by itself.
type hooks struct{ c *consumer }

var _ kgo.HookGroupManageError = hooks{}

// OnGroupManageError tells who opens the consumer. It ends one whose static id
// another process has taken: going on, the two would take from each other for
// ever.
func (h hooks) OnGroupManageError(err error) {
	select {
	case h.c.out <- err:
	default:
	}
	if !errors.Is(err, kerr.FencedInstanceID) {
		return
	}
	h.c.mu.Lock()
	h.c.fail(h.c.fenced())
	h.c.mu.Unlock()
	h.c.end()
}

// alone calls fn while no poll is under way, with c.mu held.
func (c *consumer) alone(fn func()) {
	<-c.made
	c.mu.Lock()
	c.yielding++
	c.stir()
	c.mu.Unlock()
	c.turn <- struct{}{}
	c.mu.Lock()
	c.yielding--
	fn()
	c.mu.Unlock()
	<-c.turn
}

// revoked lets partitions go in peace: what runs of them may end, up to
// rebalance_drain, and is committed before others get them.
func (c *consumer) revoked(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	if c.dead.Load() {
		return
	}
	var leaving []*spell
	c.alone(func() {
		for _, s := range c.spells {
			if slices.Contains(lost[s.topic], s.part) && !s.frozen {
				s.leave()
				leaving = append(leaving, s)
			}
		}
		c.letGo(lost)
	})
	if len(leaving) == 0 {
		return
	}
	for _, s := range leaving {
		s.a.Leave()
	}
	c.drain(leaving)
	gone := c.freeze(leaving)
	last, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := c.commit(last); err != nil {
		c.log.Warn("partitions leave without their last commit: what was handled since the one before is handled again", "error", err.Error())
	}
	c.forget(gone)
}

// commitTimeout bounds the last commit of partitions that leave.
const commitTimeout = 5 * time.Second

// drain waits until nothing of the spells runs, for as long as is given.
func (c *consumer) drain(leaving []*spell) {
	timer := time.NewTimer(c.t.o.RebalanceDrain)
	defer timer.Stop()
	poke(c.hurry)
	for _, s := range leaving {
		select {
		case <-s.idle:
		case <-timer.C:
			c.log.Warn("handlers go on with messages of partitions that have to leave: they are cancelled, and the messages handled again by the next owner")
			return
		case <-c.over:
			return
		}
	}
}

// lost lets go of partitions that others may have already. Nothing is committed.
func (c *consumer) lost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	if c.dead.Load() {
		return
	}
	var gone []*spell
	c.alone(func() {
		for _, s := range c.spells {
			if slices.Contains(lost[s.topic], s.part) {
				gone = append(gone, s)
			}
		}
		c.remove(gone)
		c.letGo(lost)
	})
	for _, s := range gone {
		s.a.Revoke()
	}
}

// freeze ends spells, all of them if none is named: settlements change nothing
// from here on. It returns those that it has ended.
func (c *consumer) freeze(which []*spell) []*spell {
	c.mu.Lock()
	if which == nil {
		which = slices.Clone(c.spells)
	}
	var gone []*spell
	for _, s := range which {
		if !s.frozen {
			s.leave()
			s.frozen = true
			c.held -= s.open
			gone = append(gone, s)
		}
	}
	c.mu.Unlock()
	for _, s := range gone {
		s.a.Revoke()
	}
	return gone
}

// forget lets go of frozen spells, whose last commit is done.
func (c *consumer) forget(gone []*spell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(gone)
}

// remove takes spells out; c.mu is held.
func (c *consumer) remove(gone []*spell) {
	for _, s := range gone {
		if !s.frozen {
			s.leave()
			s.frozen = true
			c.held -= s.open
		}
		s.unpinAll()
		if s.stopped { // the client remembers it for the next time
			c.cl.ResumeFetchPartitions(map[string][]int32{s.topic: {s.part}})
		}
	}
	c.spells = slices.DeleteFunc(c.spells, func(s *spell) bool { return slices.Contains(gone, s) })
	c.first = 0
	c.tellLeft()
}

// newSpell begins to own a partition. c.mu is held.
func (c *consumer) newSpell(topic string, part int32, p place) *spell {
	s := &spell{
		a:     transport.NewAssignment(c.cfg.Base, topic, part),
		topic: topic, id: p.id, part: part,
		next: p.offset, win: transport.NewWindow(p.offset, c.cfg.Span), top: p.offset, before: p.ahead,
		pins: &c.pins, idle: make(chan struct{}),
	}
	if p.epoch >= 0 {
		s.epochs = []epoch{{p.epoch, p.offset - 1}}
	}
	return s
}
