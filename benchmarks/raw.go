package main

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/benchmarks/harness"
)

// drainRaw claims with so many goroutines until all that counts is handled.
func drainRaw(c *count, workers int, claim func() (int, error)) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for c.handled.Load() < c.end {
				n, err := claim()
				if err != nil || n == 0 {
					errs[w] = err
					return
				}
				c.add(n)
			}
		})
	}
	wg.Wait()
	c.settled()
	return errors.Join(errs...)
}

// publishRaw inserts with so many goroutines, batch messages in a transaction.
func publishRaw(m *harness.Meter, msgs []*message.Message, goroutines, batch int, publish func([]*message.Message) error) error {
	errs := make([]error, goroutines)
	var next atomic.Int64
	var wg sync.WaitGroup
	m.Start()
	for g := range goroutines {
		wg.Go(func() {
			for errs[g] == nil {
				at := int(next.Add(int64(batch))) - batch
				if at >= len(msgs) {
					return
				}
				errs[g] = publish(msgs[at:min(len(msgs), at+batch)])
			}
		})
	}
	wg.Wait()
	m.Stop()
	return errors.Join(errs...)
}
