package runtime

import (
	"fmt"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// pulse is what [Router.Alive] has seen of the engine so far.
type pulse struct {
	mu     sync.Mutex
	began  time.Time // of the look under way; zero while there is none
	at     string    // whose lock it waits for
	stalls map[string]stall
}

// stall is work that could go on and did not, in every look since.
type stall struct {
	mark  mark
	since time.Time
	seen  time.Time // by the last look
}

// mark tells one stall from the next: it changes as soon as anything goes on.
type mark struct {
	head  *transport.Delivery // could start
	pulls int                 // Receives so far, where another could begin
}

// Alive tells whether the engine itself still turns. It returns an error if
// for longer than patience a lock of the engine could not be had, or a message
// that could start did not, or the receiver did not use credit that is there.
// Brokers, stores and slow handlers have no part in it.
//
// It never blocks and looks only when it is called, in the background, so the
// answer is that of the call before: call it at least twice within patience.
func (r *Router) Alive(patience time.Duration) error {
	p := &r.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.began.IsZero() {
		p.began, p.at = now, "router"
		go r.look(now)
	}
	if took := now.Sub(p.began); took > patience {
		return fmt.Errorf("%s: the engine's lock could not be had for %v", p.at, took.Round(time.Millisecond))
	}
	for name, s := range p.stalls {
		if took := s.seen.Sub(s.since); took > patience {
			return fmt.Errorf("%s: nothing went on for %v, though something could", name, took.Round(time.Millisecond))
		}
	}
	return nil
}

// look takes every lock once.
func (r *Router) look(now time.Time) {
	p := &r.pulse
	r.mu.Lock()
	consumers := r.consumers
	r.mu.Unlock()
	stalls := make(map[string]stall)
	for _, c := range consumers {
		name := fmt.Sprintf("consumer %q", c.name)
		p.mu.Lock()
		p.at = name
		last, known := p.stalls[name]
		p.mu.Unlock()
		m := c.overdue()
		switch {
		case m == mark{}:
		case known && last.mark == m:
			last.seen = now
			stalls[name] = last
		default:
			stalls[name] = stall{m, now, now}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.stalls = time.Time{}, stalls
}

// overdue marks what could go on at this moment; the zero mark is nothing.
// Under load there is always something, but never the same for long.
func (c *consumer) overdue() (m mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return m
	}
	if it := c.q.ready.head; it != nil && c.q.running < c.p.Concurrency {
		m.head = it.d
	}
	if c.hungry {
		if n, _ := c.free(); n > 0 {
			m.pulls = c.session.pulls
		}
	}
	return m
}
