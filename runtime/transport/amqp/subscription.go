package amqp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// subscription is a channel that consumes one queue. mu guards what is held;
// telling is taken before it by who writes acks, so that they leave in order.
type subscription struct {
	c        *consumer
	topic    string
	queue    string
	session  uint64
	prefetch int
	a        *transport.Assignment
	ch       *amqp091.Channel

	deliveries <-chan amqp091.Delivery
	closed     <-chan *amqp091.Error
	cancelled  <-chan string

	telling sync.Mutex

	mu      sync.Mutex
	paused  bool
	leaving bool      // nothing is delayed any more
	over    bool      // nothing can be told any more
	ready   []*handed // for Receive, in order of their tags
	first   *handed   // all that the broker was not told of, in order of their tags
	last    *handed
	open    int64     // of those, without an ack
	ahead   []*handed // of those, with one
	linger  *time.Timer
	lingers bool // until those ahead are told one by one
	moved   bool // some were told since then, with those before them
	toldAt  time.Time
}

// handed is one delivery while the broker waits for its ack. It is in one of
// four states:
//
//	ready: in ready, until Receive takes it; out is nil
//	out:   with the engine, until it settles or releases it
//	late:  on its way to a delay queue, or waiting for its time; out is nil
//	acked: in ahead, until the broker is told
//
// It is linked in all of them, and not any more once it is told.
type handed struct {
	s          *subscription
	tag        uint64
	d          transport.Delivery  // of its first hand-over
	give       *transport.Delivery // of its next: the engine knows them by their addresses
	out        *transport.Delivery // as the engine has it; nil while it has not
	acked      bool
	told       bool // of its ack
	next, prev *handed
}

// start lets deliveries in.
func (s *subscription) start() {
	go func() {
		s.pump()
		s.ended()
	}()
}

// pump takes in what the broker sends.
func (s *subscription) pump() {
	for in := range s.deliveries {
		h := &handed{s: s, tag: in.DeliveryTag}
		h.give = &h.d
		decode(&in, &h.d)
		h.d.Topic, h.d.Session, h.d.Assignment, h.d.Tag = s.topic, s.session, s.a, h
		h.d.Offset = int64(in.DeliveryTag) //nolint:gosec // counts up from 1
		wait := time.Until(h.d.NotBefore)
		s.mu.Lock()
		switch {
		case s.over:
		case wait >= shortestDelay:
			s.link(h)
			s.c.late.add(h, transport.Settlement{
				Delivery: &h.d, After: wait, Attempts: h.d.Attempts, FirstFailure: h.d.FirstFailure, LastError: h.d.LastError,
			})
		default:
			s.link(h)
			s.ready = append(s.ready, h)
			if len(s.ready) == 1 {
				s.c.poke()
			}
		}
		s.mu.Unlock()
	}
}

// ended fails the consumer with the reason why nothing is delivered any more,
// which the library tells before it ends the deliveries. It closes cancelled,
// too, with every channel.
func (s *subscription) ended() {
	select {
	case _, cancelled := <-s.cancelled:
		if cancelled {
			s.c.fail(s.c.t.cancelled(s))
			return
		}
	default:
	}
	err := errors.New("it delivers no more")
	select {
	case e := <-s.closed:
		if e != nil {
			err = explain(e)
		}
	default:
	}
	s.c.fail(fmt.Errorf("channel of queue %q of broker %s: %w", s.queue, s.c.conn.node.address, err))
}

// A consumer of a queue that is deleted is cancelled before that can be seen.
const (
	deletionShows = time.Second
	deletionLook  = 20 * time.Millisecond
)

// cancelled says why the broker has ended a consumer. Since RabbitMQ 4.3 that
// need not be that its queue was deleted: before, what was held for too long
// closed the channel.
func (t *Transport) cancelled(s *subscription) error {
	s.revoke() // the broker gives it to others by now
	over := time.After(deletionShows)
	for {
		_, err := t.stat(s.c.cfg.Base, s.queue)
		if absent(err) {
			return t.gone(s)
		}
		select {
		case <-s.c.conn.lost:
			return fmt.Errorf("connection to broker %s: %w", s.c.conn.node.address, s.c.conn.why())
		case <-time.After(deletionLook):
			continue
		case <-over:
		case <-s.c.cfg.Base.Done():
		}
		if err != nil {
			return fmt.Errorf("the broker has cancelled the consumer of queue %q, and does not say whether that is there: %v", s.queue, err) //nolint:errorlint // it is not why
		}
		return fmt.Errorf("the broker has cancelled the consumer of queue %q: a delivery was held for longer than its consumer_timeout, or the queue was made anew; shorten timeout or prefetch, or raise it at the broker", s.queue)
	}
}

// gone notes that a queue was deleted under its consumer.
func (t *Transport) gone(s *subscription) error {
	t.mu.Lock()
	t.deleted[s.queue]++
	n := t.deleted[s.queue]
	t.mu.Unlock()
	s.c.cfg.Log.Error("queue was deleted under its consumer: what was in it is lost", "queue", s.queue, "times", n, "then", t.o.QueueDeleted)
	return fmt.Errorf("queue %q was deleted under its consumer", s.queue)
}

// take hands out what is ready.
func (s *subscription) take(ds []*transport.Delivery, limit int) []*transport.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused || s.over {
		return ds
	}
	n := min(limit-len(ds), len(s.ready))
	for _, h := range s.ready[:n] {
		h.out = h.give
		ds = append(ds, h.out)
	}
	clear(s.ready[:n])
	if s.ready = s.ready[n:]; len(s.ready) == 0 {
		s.ready = nil
	}
	return ds
}

// putBack has Receive hand out h once more, as again, at its place. mu is held.
func (s *subscription) putBack(h *handed, again *transport.Delivery) {
	h.give, h.out = again, nil
	i := len(s.ready)
	for i > 0 && s.ready[i-1].tag > h.tag {
		i--
	}
	s.ready = slices.Insert(s.ready, i, h)
	s.c.poke()
}

// link adds what came, as the last. mu is held.
func (s *subscription) link(h *handed) {
	h.prev = s.last
	if s.last == nil {
		s.first = h
	} else {
		s.last.next = h
	}
	s.last = h
	s.open++
}

// unlink forgets what the broker is told of. mu is held.
func (s *subscription) unlink(h *handed) {
	if h.prev == nil {
		s.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		s.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.next, h.prev, h.told = nil, nil, true
}

// unsettled counts what is held here without an ack.
func (s *subscription) unsettled() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// leave has nothing more delayed: what comes from now on is given back.
func (s *subscription) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
}

// lost tells whether the spell has ended.
func (s *subscription) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// revoke ends the spell: nothing is told, and nothing handed out, any more.
func (s *subscription) revoke() {
	s.mu.Lock()
	s.over = true
	s.ready = nil
	if s.linger != nil {
		s.linger.Stop()
	}
	s.mu.Unlock()
	s.a.Revoke()
}

// end forgets the subscription.
func (s *subscription) end() {
	s.c.t.mu.Lock()
	delete(s.c.t.members, s)
	s.c.t.mu.Unlock()
}
