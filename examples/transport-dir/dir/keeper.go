package dir

import (
	"errors"
	"slices"
	"time"
)

// keep follows the group until the consumer is closed, also while nobody
// receives. An error ends the consumer.
func (c *consumer) keep() {
	defer close(c.kept)
	tick := time.NewTicker(c.t.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.stop:
			return
		}
		if err := c.balance(); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			c.poke()
			return
		}
	}
}

// balance gives away what is for others, and takes what is for this member.
func (c *consumer) balance() error {
	for _, s := range c.seats {
		mine, err := s.share()
		if err != nil {
			return err
		}
		for p := range mine {
			sp := c.spell(s, p)
			switch {
			case sp == nil && mine[p]:
				err = c.begin(s, p)
			case sp != nil && (!mine[p] || !sp.leaving.IsZero()):
				err = c.leave(sp)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *consumer) spell(s *seat, partition int) *spell {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spells, func(sp *spell) bool { return sp.seat == s && sp.partition == partition })
	if i < 0 {
		return nil
	}
	return c.spells[i]
}

func (c *consumer) begin(s *seat, partition int) error {
	sp, err := s.own(c, partition)
	if sp == nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spells = append(c.spells, sp)
	c.poke()
	return nil
}

// leave asks for what is held, and ends the spell when it is settled or the
// time is up. Assignments call the engine, so no mutex of ours is held.
func (c *consumer) leave(sp *spell) error {
	c.mu.Lock()
	first := sp.leaving.IsZero()
	if first {
		sp.leaving = time.Now()
	}
	c.mu.Unlock()
	if first {
		sp.a.Leave()
	}
	c.mu.Lock()
	if len(sp.held) > 0 && time.Since(sp.leaving) < c.t.o.RebalanceDrain {
		c.mu.Unlock()
		return nil
	}
	c.spells = slices.DeleteFunc(c.spells, func(o *spell) bool { return o == sp })
	sp.over = true
	c.mu.Unlock()
	return sp.end()
}

// end gives up a spell that is over. What it holds comes again to the next
// owner, who can be one only after the engine knows, and the last settlements
// are written.
func (sp *spell) end() error {
	sp.a.Revoke()
	return errors.Join(sp.save(), sp.lock.Close())
}
