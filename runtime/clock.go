package runtime

import "time"

// tick is how exact the beginning of an attempt is known.
const tick = 10 * time.Millisecond

// clock tells when attempts begin, to a tick: reading the time at each would be
// a tenth of what the engine costs. It stands still while attempts take longer
// than that, or there are none.
type clock struct {
	now   int64 // ns since the epoch of the consumer
	ticks bool  // until a tick in which nothing began
	began bool
}

// begin is when an attempt begins that follows another at once. mu is held.
func (c *consumer) begin() int64 {
	if !c.clock.ticks {
		c.clock = clock{now: c.sinceEpoch(), ticks: true}
		var t *time.Timer
		t = time.AfterFunc(tick, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.clock = clock{now: c.sinceEpoch(), ticks: c.clock.began}
			if c.clock.ticks {
				t.Reset(tick)
			}
		})
	}
	c.clock.began = true
	return c.clock.now
}

// sinceEpoch is the time, as the beginnings of attempts are told.
func (c *consumer) sinceEpoch() int64 { return int64(time.Since(c.epoch)) }
