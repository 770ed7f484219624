package runtime

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// session is one connection of a consumer: the broker's side of it, and the
// settlements that it has not been told yet.
type session struct {
	c       transport.Consumer
	flushAt int
	bound   int
	wake    chan struct{} // there is something to tell
	full    chan struct{} // there is enough to tell it now
	flow    chan struct{} // pauses are to be looked at
	over    chan struct{} // closed when the session ends

	mu      sync.Mutex
	pending []transport.Settlement
	telling []transport.Settlement
	lost    bool
	added   int // settlements so far
	told    int
	waiting []barrier

	pulls int // Receives begun; guarded by the consumer's mutex
}

// barrier is somebody who waits until so many settlements are told.
type barrier struct {
	upTo int
	done chan struct{}
}

// settleLinger is how long a settlement waits for others to be told with.
const settleLinger = 2 * time.Millisecond

func newSession(c transport.Consumer, p transport.Policy) *session {
	return &session{
		c: c, flushAt: min(max(p.Prefetch/4, 1), 256), bound: max(8*p.Prefetch, 4096),
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), flow: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

// settle hands over a settlement. It never waits.
func (s *session) settle(st transport.Settlement) {
	s.mu.Lock()
	if s.lost {
		s.mu.Unlock()
		return
	}
	s.pending = append(s.pending, st)
	s.added++
	n := len(s.pending)
	s.mu.Unlock()
	switch n {
	case 1:
		poke(s.wake)
	case s.flushAt:
		poke(s.full)
	}
}

// flush waits until all that was handed over is told, or the session ends.
// What was released comes again in order only after that.
func (s *session) flush() {
	s.mu.Lock()
	if s.told == s.added {
		s.mu.Unlock()
		return
	}
	b := barrier{s.added, make(chan struct{})}
	s.waiting = append(s.waiting, b)
	s.mu.Unlock()
	poke(s.full)
	select {
	case <-b.done:
	case <-s.over:
	}
}

// backlog tells whether so much is to be told that nothing more should be taken.
func (s *session) backlog() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)+len(s.telling) > s.bound
}

// poke sends without waiting to a channel with room for one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// settleLoop tells the broker in batches until the session ends, and then
// what is left.
func (c *consumer) settleLoop(s *session) {
	linger := time.NewTimer(settleLinger)
	defer linger.Stop()
	var spare []transport.Settlement
	for {
		select {
		case <-s.wake:
		case <-s.over:
			c.tell(s, spare)
			return
		}
		linger.Reset(settleLinger)
		select {
		case <-linger.C:
		case <-s.full:
		case <-s.over:
		}
		spare = c.tell(s, spare)
	}
}

// tell gives the broker what is pending, and what comes in meanwhile. It
// returns a slice for reuse.
func (c *consumer) tell(s *session, spare []transport.Settlement) []transport.Settlement {
	for {
		s.mu.Lock()
		batch := s.pending
		s.pending, s.telling = spare[:0], batch
		s.mu.Unlock()
		if len(batch) == 0 {
			return batch
		}
		c.settleBatch(s, batch)
		s.mu.Lock()
		s.telling = nil
		s.told += len(batch)
		s.waiting = slices.DeleteFunc(s.waiting, func(b barrier) bool {
			if b.upTo > s.told {
				return false
			}
			close(b.done)
			return true
		})
		s.mu.Unlock()
		clear(batch)
		spare = batch
		c.mu.Lock()
		c.feed()
		c.mu.Unlock()
	}
}

// settleBatch gives one batch until it is taken, for as long as the session
// lives, and for a while longer after a drain.
func (c *consumer) settleBatch(s *session, batch []transport.Settlement) {
	const what = "settlement"
	over := s.over
	var giveUp <-chan time.Time
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.base), publishTimeout)
		err := s.c.Settle(ctx, batch)
		cancel()
		if err == nil {
			if tries > 1 {
				c.clearTrouble(what)
			}
			return
		}
		c.setTrouble(what, err)
		select {
		case <-time.After(reopenWait(tries)):
			continue
		case <-over:
			if !s.isLost() {
				over, giveUp = nil, time.After(closeTimeout)
				continue
			}
		case <-giveUp:
		}
		c.mu.Lock()
		for _, st := range batch {
			if st.Verdict == transport.Ack {
				c.remember(st.Delivery)
			}
		}
		c.mu.Unlock()
		c.clearTrouble(what)
		return
	}
}

func (s *session) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// endSession ends the session. Where the connection is lost, what has not
// started is dropped, what runs becomes orphans, and acks that were not told
// are remembered; else the rest is told before this session's loops return.
func (c *consumer) endSession(s *session, lost bool) {
	c.mu.Lock()
	if lost {
		for _, sp := range c.q.spells {
			for _, it := range c.q.withdraw(sp, true) {
				if it.timer != nil {
					it.timer.Stop()
				}
			}
		}
		s.mu.Lock()
		s.lost = true
		for _, st := range append(s.telling, s.pending...) {
			if st.Verdict == transport.Ack {
				c.remember(st.Delivery)
			}
		}
		s.pending = nil
		s.mu.Unlock()
	}
	c.session = nil
	c.mu.Unlock()
	close(s.over)
}

// untold is a message that was done with while the broker could not be told.
type untold struct {
	id   string
	body uint64
}

var bodySeed = maphash.MakeSeed()

// maxUntold bounds what is remembered of a lost connection; beyond it,
// messages run again, as any may that is delivered at least once.
const maxUntold = 1 << 16

// remember keeps an ack that the broker did not take, so that the message is
// acked unrun when it comes back, where coordinates tell that it is the same.
// mu is held.
func (c *consumer) remember(d *transport.Delivery) {
	if !c.caps.StableCoordinates || len(c.untold) >= maxUntold {
		return
	}
	if c.untold == nil {
		c.untold = make(map[string]untold)
	}
	c.untold[d.Coordinates()] = untold{d.ID, maphash.Bytes(bodySeed, d.Payload)}
}

// toldBefore tells whether d is a remembered message, and forgets it. mu is held.
func (c *consumer) toldBefore(d *transport.Delivery) bool {
	if len(c.untold) == 0 {
		return false
	}
	at := d.Coordinates()
	u, ok := c.untold[at]
	delete(c.untold, at)
	return ok && u == untold{d.ID, maphash.Bytes(bodySeed, d.Payload)}
}

// checkFlow has pauses looked at if what is held by order has crossed a bound.
// mu is held.
func (c *consumer) checkFlow() {
	over := c.q.heldOver() || c.over && (c.q.parked+c.q.stuck > c.p.Prefetch/4 || c.q.heldBytes > c.p.PrefetchBytes/4)
	if (over || c.over) && c.session != nil {
		poke(c.session.flow)
	}
	c.over = over
}

// flowLoop pauses the partitions that hold parked messages while half of
// the credit is held by order, and resumes them at a quarter.
func (c *consumer) flowLoop(s *session) {
	for {
		select {
		case <-s.flow:
		case <-s.over:
			return
		}
		var pause, resume []*transport.Assignment
		c.mu.Lock()
		for _, sp := range c.q.spells {
			want := c.over && sp.part.held > 0
			switch {
			case sp.session != s || sp.leaving || want == sp.paused:
				continue
			case want:
				pause = append(pause, sp.assignment)
			default:
				resume = append(resume, sp.assignment)
				if sp.shut {
					sp.shut, sp.openFrom = false, s.pulls+1
				}
			}
			sp.paused = want
		}
		c.mu.Unlock()
		for _, a := range pause {
			c.log.WarnContext(c.base, "partition paused: too much waits behind failing messages", "topic", a.Topic, "partition", a.Partition)
			s.c.Pause(a)
		}
		c.shed(s)
		if len(resume) > 0 {
			s.flush()
		}
		for _, a := range resume {
			s.c.Resume(a)
		}
	}
}

// shed gives back what is stuck beyond half of the credit, so that one key's
// burst behind a failing message leaves room for other partitions.
func (c *consumer) shed(s *session) {
	if !c.caps.ReleaseInOrder || c.p.AckOnReceive {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.q.spells {
		if sp.session == s && sp.paused {
			c.giveBack(c.q.shed(sp))
		}
	}
	c.feed()
}
