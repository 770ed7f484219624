package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

// outside goes by on_out_of_range where the log no longer has a position.
func (c *consumer) outside(topic string, part int32, at, start, end int64) (int64, error) {
	to := start
	switch c.t.o.OnOutOfRange {
	case rangeFail:
		return 0, fmt.Errorf("partition %d: the position %d is not in the log, which has %d to %d; set it by hand, or set on_out_of_range to earliest or latest", part, at, start, end)
	case rangeLatest:
		to = end
	}
	gone := max(0, to-at)
	c.outOfRange.Add(uint64(gone))
	c.log.Error("position is not in the log any more", "topic", topic, "partition", part, "position", at,
		"log_start", start, "log_end", end, "goes_on_at", to, "skipped", gone, "repeated", max(0, min(at, end)-to), "on_out_of_range", c.t.o.OnOutOfRange)
	return to, nil
}

// check sets a position back to where the log was cut below it, goes by
// on_out_of_range where it is not in the log otherwise, and drops what is said
// to be done ahead unless the log is known to have it.
func (c *consumer) check(ctx context.Context, topic string, ps map[int32]place, starts, ends map[int32]int64) error {
	cuts, err := c.epochEnds(ctx, topic, ps, func(p place) int32 { return p.epoch })
	if err != nil {
		return err
	}
	tops, err := c.epochEnds(ctx, topic, ps, func(p place) int32 {
		if p.ahead == nil {
			return -1
		}
		return p.ahead.epoch
	})
	if err != nil {
		return err
	}
	for part, p := range ps {
		start, known := starts[part]
		end, both := ends[part]
		if !known || !both {
			p.ahead = nil
			ps[part] = p
			continue
		}
		if cut, ok := cuts[part]; ok && cut < p.offset {
			to := min(cut, end)
			c.log.Error("the log was cut below the position", "topic", topic, "partition", part, "position", p.offset, "goes_on_at", to)
			p.offset, p.epoch, p.ahead, p.moved = to, -1, nil, true
		}
		if p.offset < start || p.offset > end {
			if p.offset, err = c.outside(topic, part, p.offset, start, end); err != nil {
				return err
			}
			p.epoch, p.ahead, p.moved = -1, nil, true
		}
		if p.ahead != nil && p.ahead.epoch >= 0 {
			if top, ok := tops[part]; !ok || top < p.ahead.top {
				c.log.Warn("the log may have been cut above the position: what was done ahead of it is handled again", "topic", topic, "partition", part, "position", p.offset)
				p.ahead = nil
			}
		}
		ps[part] = p
	}
	return nil
}

// epochEnds asks where leader epochs end. Partitions that cannot be asked, and
// those whose log does not know the epoch, are left out.
func (c *consumer) epochEnds(ctx context.Context, topic string, ps map[int32]place, epoch func(place) int32) (map[int32]int64, error) {
	var ask kadm.OffsetForLeaderEpochRequest
	for part, p := range ps {
		if e := epoch(p); e >= 0 {
			ask.Add(topic, part, e)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	waiting, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	found, err := c.adm.OffsetForLeaderEpoch(waiting, ask)
	ends := map[int32]int64{}
	for part, end := range found[topic] {
		if end.Err == nil && end.EndOffset >= 0 {
			ends[part] = end.EndOffset
		}
	}
	return ends, lasting(ctx, err)
}
