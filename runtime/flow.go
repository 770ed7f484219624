package runtime

import "github.com/leat-io/leat/runtime/transport"

// checkFlow has pauses looked at if what is held by order has crossed a bound.
// mu is held.
func (c *consumer) checkFlow() {
	over := c.q.heldOver() || c.over && (c.q.parked+c.q.stuck > c.p.Prefetch/4 || c.q.heldBytes > c.p.PrefetchBytes/4)
	if (over || c.over) && c.session != nil {
		poke(c.session.flow)
	}
	c.over = over
}

// flowLoop pauses the partitions that hold parked messages while half of the
// credit is held by order, and resumes them at a quarter.
func (c *consumer) flowLoop(s *session) {
	for {
		select {
		case <-s.flow:
		case <-s.over:
			return
		}
		c.adjustFlow(s)
	}
}

// adjustFlow tells the broker what is to be paused and resumed. The receiver
// does so too before it comes again for what it has just given back.
func (c *consumer) adjustFlow(s *session) {
	s.flowing.Lock()
	defer s.flowing.Unlock()
	pause, resume := c.flowChanges(s)
	for _, a := range pause {
		c.log.InfoContext(c.base, "partition paused: too much waits behind messages that fail or do not end", "topic", a.Topic, "partition", a.Partition)
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

// flowChanges tells which partitions are to be paused and resumed.
func (c *consumer) flowChanges(s *session) (pause, resume []*transport.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.q.spells {
		want := c.over && sp.part.held > 0 || sp.resting
		switch {
		case sp.session != s || sp.leaving:
			continue
		case want && !sp.paused:
			pause = append(pause, sp.assignment)
		case !want && (sp.paused || sp.shut):
			resume = append(resume, sp.assignment)
			if sp.shut {
				sp.shut, sp.openFrom = false, s.pulls+1
			}
		}
		sp.paused = want
	}
	return pause, resume
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
