package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// Receive hands out what was fetched, and waits for more.
func (c *consumer) Receive(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.wantsMore() {
			if _, err := c.poll(ctx, false); err != nil {
				return nil, err
			}
		}
		if ds, err := c.take(limit, maxBytes); len(ds) > 0 || err != nil {
			return ds, err
		}
		idle, err := c.poll(ctx, false)
		if idle {
			c.commitPassed(ctx)
			_, err = c.poll(ctx, true)
		}
		if err != nil {
			return nil, err
		}
	}
}

// wantsMore tells whether another fetch is to be taken in before what is here is
// handed out: one brings little more than one partition, and handlers of
// different partitions' keys work at once only if some of each is here.
func (c *consumer) wantsMore() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pins.queued > 0 && c.pins.queued+c.size.want <= c.cfg.PrefetchBytes
}

// turn is how many deliveries a partition gives before it is the next one's turn:
// many keys are at work only if all partitions are.
const turn = 64

// take hands out what there is, of all partitions in turns.
func (c *consumer) take(limit int, maxBytes int64) (ds []*transport.Delivery, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	m := maker{left: limit}
	need := int64(0)
	for idle := 0; idle < len(c.spells) && len(ds) < limit; c.first++ {
		s := c.spells[c.first%len(c.spells)]
		before := len(ds)
		for len(ds) < min(limit, before+turn) {
			h := s.give(&m)
			if h == nil {
				break
			}
			if h.size > maxBytes {
				need = max(need, h.size)
				break
			}
			s.took(h)
			maxBytes -= h.size
			ds = append(ds, &h.Delivery)
		}
		if len(ds) > before {
			idle = 0
		} else {
			idle++
		}
	}
	for _, s := range c.spells {
		c.adjust(s)
	}
	c.held += len(ds)
	if c.held > c.crowd {
		poke(c.hurry)
	}
	if len(ds) == 0 && need > 0 {
		return nil, transport.NeedBytes(need)
	}
	return ds, nil
}

// adjust has the client stop fetching a partition that is not handed out while
// something of it is here, and go on when that is gone. c.mu is held.
func (c *consumer) adjust(s *spell) {
	switch full := !s.ready() && (len(s.queue) > 0 || s.first != nil); {
	case full && !s.stopped:
		s.stopped = true
		c.cl.PauseFetchPartitions(map[string][]int32{s.topic: {s.part}})
	case s.stopped && s.ready() && len(s.queue) == 0:
		s.stopped = false
		c.cl.ResumeFetchPartitions(map[string][]int32{s.topic: {s.part}})
	}
}

// poll has the client's records put with their spells. If there are none it is
// idle, or waits until there are some, ctx ends, or something else is to be
// looked at.
func (c *consumer) poll(ctx context.Context, wait bool) (idle bool, err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-c.turn }()
	fetches := c.cl.PollFetches(nil) //nolint:staticcheck,contextcheck // without a context it does not wait
	if len(fetches) == 0 {
		if !wait {
			return true, nil
		}
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		if !c.mayWait(cancel) {
			return false, nil
		}
		c.bombs.grown.Store(0) // it was thrown away, or is on its way here
		fetches = c.cl.PollFetches(waiting)
		c.waited()
	}
	c.bombs.grown.Store(0)        // it is taken
	return false, c.sort(fetches) //nolint:contextcheck // what it may begin outlives this call
}

// mayWait notes how to end a poll; false if it is not to wait.
func (c *consumer) mayWait(cancel func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stirred || c.yielding > 0 {
		c.stirred = false
		return false
	}
	c.endPoll = cancel
	return true
}

func (c *consumer) waited() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endPoll, c.stirred = nil, false
}

// stir has Receive look again. c.mu is held.
func (c *consumer) stir() {
	c.stirred = true
	if c.endPoll != nil {
		c.endPoll()
	}
}

// sort puts what a poll has brought where it belongs.
func (c *consumer) sort(fetches kgo.Fetches) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failed error
	before := c.pins.queued
	for i := range fetches {
		from := &fetched{}
		for j := range fetches[i].Topics {
			ft := &fetches[i].Topics[j]
			for k := range ft.Partitions {
				fp := &ft.Partitions[k]
				s := c.spellOf(ft.Topic, fp.Partition)
				if fp.Err != nil {
					if err := c.fault(s, ft.Topic, fp); failed == nil {
						failed = err
					}
				}
				if s == nil || s.leaving || len(fp.Records) == 0 {
					continue
				}
				s.enqueue(fp.Records, from)
				if s.stuck != "" {
					s.stuck = ""
					c.tellLeft()
				}
			}
		}
	}
	c.size.learn(c.cl, c.pins.queued-before, len(c.spells))
	if failed != nil && c.err == nil {
		c.err = failed
	}
	return failed
}

// fault judges an error that came with records. nil: the consumer goes on.
// c.mu is held.
func (c *consumer) fault(s *spell, topic string, fp *kgo.FetchPartition) error {
	err := fp.Err
	loss, isLoss := errors.AsType[*kgo.ErrDataLoss](err)
	_, isSession := errors.AsType[*kgo.ErrGroupSession](err)
	large, isLarge := errors.AsType[*kgo.ErrDecompressTooLarge](err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errInflated):
		return nil
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("receive from group %q: %w", c.cfg.Group, transport.ErrClosed)
	case errors.Is(err, kerr.FencedInstanceID):
		return c.fenced()
	case isLarge && s != nil:
		if s.stuck == "" {
			s.stuck = fmt.Sprintf("a compressed batch at offset %d is larger than max_batch_bytes (%d): raise that, or set the group's position to %d", large.Offset, c.t.o.MaxBatchBytes, large.NextOffset)
			c.log.Error("partition stands still", "topic", topic, "partition", fp.Partition, "why", s.stuck)
			c.tellLeft()
			go c.lookAtStart(c.cl.Context(), s, large.Offset)
		}
		return nil
	case isLoss:
		return fmt.Errorf("%w: the position is looked up again", loss)
	case kerr.IsRetriable(err) && isSession && topic == "":
		return c.interrupt(err)
	case kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.UnknownTopicID):
		return nil // the client tries again
	case topic == "":
		return refuse(fmt.Errorf("group %q: %w", c.cfg.Group, err))
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InconsistentTopicID):
		return fmt.Errorf("topic %q was deleted, or made again: %w", topic, err)
	default:
		return refuse(fmt.Errorf("partition %d of topic %q: %w", fp.Partition, topic, err))
	}
}

// interrupt judges an error that has cost the member all partitions, and after
// which the client joins again by itself. If that ends so too, the consumer
// does: whoever supervises it tells of the trouble, and tries again. c.mu is held.
func (c *consumer) interrupt(err error) error {
	if c.interrupted {
		return fmt.Errorf("group %q: %w", c.cfg.Group, err)
	}
	c.interrupted = true
	c.log.Warn("the member has lost its partitions: it joins the group again", "error", err.Error())
	return nil
}

func (c *consumer) spellOf(topic string, part int32) *spell {
	for _, s := range c.spells {
		if s.part == part && s.topic == topic {
			return s
		}
	}
	return nil
}
