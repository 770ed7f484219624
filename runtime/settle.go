package runtime

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// settleLinger is how long a settlement waits for others to be told with.
const settleLinger = 2 * time.Millisecond

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
		batch := s.swap(spare)
		if len(batch) == 0 {
			return batch
		}
		c.settleBatch(s, batch)
		s.settled(batch)
		clear(batch)
		spare = batch
		c.mu.Lock()
		c.feed()
		c.mu.Unlock()
	}
}

// settleBatch gives one batch until it is taken, for as long as the session
// lives, and for a while longer after a drain. One that is not taken for long
// ends the session: its connection is no good.
func (c *consumer) settleBatch(s *session, batch []transport.Settlement) {
	over := s.over
	began := time.Now()
	for tries := 1; s.settling.Err() == nil; tries++ {
		ctx, cancel := context.WithTimeout(s.settling, publishTimeout)
		err := s.c.Settle(ctx, batch)
		cancel()
		if err == nil {
			if tries > 1 {
				c.clearTrouble(stepSettle, "")
			}
			return
		}
		c.setTrouble(stepSettle, "", err)
		if time.Since(began) >= publishTimeout {
			s.fail(fmt.Errorf("settle: %w", err))
		}
		select {
		case <-time.After(reopenWait(tries)):
		case <-s.settling.Done():
		case <-over:
			over = nil // after a drain, until settling ends
		}
	}
	c.mu.Lock()
	c.rememberAll(batch)
	c.mu.Unlock()
	c.clearTrouble(stepSettle, "")
}

// endSession ends the session. Where the connection is lost, what has not
// started is dropped, what runs becomes orphans, and acks that were not told
// are remembered; else the rest is told before this session's loops return.
func (c *consumer) endSession(s *session, lost bool) {
	c.mu.Lock()
	if lost {
		for _, sp := range c.q.spells {
			if c.p.AckOnReceive {
				continue // what is here is ours alone
			}
			stopTimers(c.q.withdraw(sp, true))
		}
		c.rememberAll(s.lose())
	}
	c.session = nil
	c.mu.Unlock()
	s.fail(context.Canceled)
	s.end(lost)
}

// unsent is a message that was done with while the broker could not be told.
type unsent struct {
	id   string
	body uint64
}

var bodySeed = maphash.MakeSeed()

// maxUnsent bounds what is remembered of lost connections; beyond it, messages
// run again, as any may that is delivered at least once.
const maxUnsent = 1 << 16

// remember keeps an ack that the broker did not take, so that the message is
// acked unrun when it comes back, where coordinates tell that it is the same.
// mu is held.
func (c *consumer) remember(d *transport.Delivery) {
	if !c.caps.StableCoordinates || c.p.AckOnReceive {
		return
	}
	if c.unsent == nil || len(c.unsent) >= maxUnsent { // too many: the oldest are as good as any to forget
		c.unsent = make(map[string]unsent)
	}
	c.unsent[d.Coordinates()] = unsent{d.ID, maphash.Bytes(bodySeed, d.Payload)}
}

func (c *consumer) rememberAll(batch []transport.Settlement) {
	for _, st := range batch {
		if st.Verdict == transport.Ack {
			c.remember(st.Delivery)
		}
	}
}

// rememberPending keeps the acks of a spell that ended before they were told.
// mu is held.
func (c *consumer) rememberPending(sp *spell) {
	s := sp.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range [][]transport.Settlement{s.telling, s.pending} {
		for _, st := range batch {
			if st.Verdict == transport.Ack && st.Delivery.Assignment == sp.assignment {
				c.remember(st.Delivery)
			}
		}
	}
}

// toldBefore tells whether d is a remembered message, and forgets it. mu is held.
func (c *consumer) toldBefore(d *transport.Delivery) bool {
	if len(c.unsent) == 0 {
		return false
	}
	at := d.Coordinates()
	u, ok := c.unsent[at]
	delete(c.unsent, at)
	return ok && u == unsent{d.ID, maphash.Bytes(bodySeed, d.Payload)}
}
