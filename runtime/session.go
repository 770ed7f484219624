package runtime

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// session is one connection of a consumer: the broker's side of it, and the
// settlements that it has not been told yet.
type session struct {
	c     transport.Consumer
	ctx   context.Context         //nolint:containedctx // ends with the consumer's, or when the broker is lost
	fail  context.CancelCauseFunc // ends it: the broker is lost
	bound int                     // on settlements that are not told
	bytes int64                   // and on the payloads they keep

	settling    context.Context    //nolint:containedctx // of Settle
	stopSettles context.CancelFunc // ends a Settle under way

	flushAt int
	wake    chan struct{} // there is something to tell
	full    chan struct{} // there is enough to tell it now
	flow    chan struct{} // pauses are to be looked at
	over    chan struct{} // closed when the session ends

	flowing sync.Mutex // pauses are told by one at a time

	pulls int // Receives begun; guarded by the consumer's mutex

	mu      sync.Mutex
	pending []transport.Settlement
	telling []transport.Settlement
	held    int64 // bytes of both
	lost    bool
	added   int // settlements so far
	told    int
	waiting []barrier
}

// barrier is somebody who waits until so many settlements are told.
type barrier struct {
	upTo int
	done chan struct{}
}

func newSession(ctx context.Context, tc transport.Consumer, c *consumer) *session {
	flushAt := min(max(c.p.Prefetch/4, 1), 256)
	if n := c.caps.InFlight; n > 0 {
		flushAt = min(flushAt, max(n/4, 1))
	}
	s := &session{
		c: tc, flushAt: flushAt, bound: max(8*c.p.Prefetch, 4096), bytes: c.p.PrefetchBytes,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), flow: make(chan struct{}, 1), over: make(chan struct{}),
	}
	s.ctx, s.fail = context.WithCancelCause(ctx)
	s.settling, s.stopSettles = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// settle hands over a settlement. It never waits.
func (s *session) settle(st transport.Settlement) {
	s.mu.Lock()
	if s.lost {
		s.mu.Unlock()
		return
	}
	s.pending = append(s.pending, st)
	s.held += int64(len(st.Delivery.Payload))
	s.added++
	n := len(s.pending)
	s.mu.Unlock()
	if n == 1 {
		poke(s.wake)
	}
	if n == s.flushAt {
		poke(s.full)
	}
}

// swap begins the telling of what is pending.
func (s *session) swap(spare []transport.Settlement) []transport.Settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.telling = spare[:0], s.pending
	return s.telling
}

// settled ends it.
func (s *session) settled(batch []transport.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.telling = nil
	s.told += len(batch)
	for i := range batch {
		s.held -= int64(len(batch[i].Delivery.Payload))
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(b barrier) bool {
		if b.upTo > s.told {
			return false
		}
		close(b.done)
		return true
	})
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
	case <-s.ctx.Done():
	case <-s.over:
	}
}

// backlog tells whether so much is to be told that nothing more should be taken.
func (s *session) backlog() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)+len(s.telling) > s.bound || s.held > s.bytes
}

// untold counts what the broker has not been told.
func (s *session) untold() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) + len(s.telling)
}

// lose ends the telling, and returns what was not told.
func (s *session) lose() []transport.Settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	left := slices.Concat(s.telling, s.pending)
	s.pending = nil
	return left
}

// poke sends without waiting to a channel with room for one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// end ends the session, and a Settle under way: at once if the broker is lost,
// else after a while.
func (s *session) end(lost bool) {
	if lost {
		s.stopSettles()
	} else {
		time.AfterFunc(closeTimeout, s.stopSettles)
	}
	close(s.over)
}
