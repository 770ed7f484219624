package main

import (
	"fmt"
	"sync/atomic"

	"github.com/leat-io/leat/benchmarks/harness"
)

// twice is how many times as large as what is measured most backlogs are.
const twice = 2

// count has a meter measure n messages in the middle of a backlog of times·n:
// so that neither the start nor the end of a program is in the figures, nor
// what it has read ahead. With times 1 it is all of them, from now on to when
// the last is handled and, as told by settled, acked.
type count struct {
	m          *harness.Meter
	begin, end int64
	handled    atomic.Int64
	begun      chan struct{} // closed when it measures
	reached    chan struct{} // closed when the last that is measured was handled
}

func newCount(m *harness.Meter, n, times int) *count {
	begin := (times - 1) * n / 2
	c := &count{m: m, begin: int64(begin), end: int64(begin + n), begun: make(chan struct{}), reached: make(chan struct{})}
	if c.whole() {
		m.Start()
		close(c.begun)
	}
	return c
}

// whole tells whether all of the backlog is measured.
func (c *count) whole() bool { return c.begin == 0 }

// add counts messages that were handled.
func (c *count) add(k int) {
	n := c.handled.Add(int64(k))
	if n-int64(k) < c.begin && n >= c.begin {
		c.m.StartWarm()
		close(c.begun)
	}
	if n-int64(k) < c.end && n >= c.end {
		<-c.begun // by another goroutine, which may be at it still
		if !c.whole() {
			c.m.Stop()
		}
		close(c.reached)
	}
}

// await waits for the last that is measured, or the end of a program that ends before.
func (c *count) await(ended <-chan error) error {
	select {
	case <-c.reached:
		return nil
	case err := <-ended:
		select {
		case <-c.reached:
			return err
		default:
			return fmt.Errorf("ended after %d of %d messages: %w", c.handled.Load(), c.end, err)
		}
	}
}

// settled is called when all is acked.
func (c *count) settled() {
	if c.whole() {
		c.m.Stop()
	}
}
