package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/runtime/transport"
)

// place is where reading of a partition begins.
type place struct {
	id     kadm.TopicID
	offset int64
	epoch  int32 // of the record before; -1: not known
	ahead  *ahead
	moved  bool // it is not what was committed
}

// fetchedOffset is what the group has committed in a partition.
type fetchedOffset struct {
	offset   int64 // -1: nothing
	epoch    int32
	metadata string
}

// offsetsFetched keeps the metadata of commits, which assigned is not given.
func (c *consumer) offsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	<-c.made
	if len(resp.Groups) == 1 {
		c.fetched = resp.Groups[0].Topics
	}
	return nil
}

// assigned finds out where to begin with partitions that have come, and begins
// to own them. A position that was not committed is, before anything is read.
func (c *consumer) assigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	found, err := c.begin(ctx, offsets)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		// The client takes a cancelled context for its own, and would leave
		// the group without a word.
		return nil, uncancelled(err)
	}
	for topic, ps := range found {
		for part, p := range ps {
			offsets[topic][part] = kgo.NewOffset().At(p.offset).WithEpoch(p.epoch)
		}
	}
	return offsets, nil
}

// uncancelled hides that a context within an error was cancelled.
func uncancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}

// begin finds the places of all partitions that have come.
func (c *consumer) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]place, error) {
	found := map[string]map[int32]place{}
	at := kadm.Offsets{}
	for topic, parts := range offsets {
		ps, err := c.placesOf(ctx, topic, parts)
		if err != nil {
			return nil, fmt.Errorf("position in topic %q: %w", topic, err)
		}
		found[topic] = ps
		for part, p := range ps {
			if p.moved {
				at.Add(kadm.Offset{Topic: topic, TopicID: p.id, Partition: part, At: p.offset, LeaderEpoch: p.epoch})
			}
		}
	}
	if err := c.commitPlaces(ctx, at); err != nil {
		return nil, err
	}
	c.own(found)
	return found, nil
}

// own makes the spells.
func (c *consumer) own(found map[string]map[int32]place) {
	var old []*spell
	c.alone(func() {
		for topic, ps := range found {
			for part, p := range ps {
				if s := c.spellOf(topic, part); s != nil {
					old = append(old, s)
				}
				c.spells = append(c.spells, c.newSpell(topic, part, p))
			}
		}
		c.remove(old)
	})
	for _, s := range old {
		s.a.Revoke()
	}
}

// committed is what offsetsFetched has kept of a topic.
func (c *consumer) committed(topic string, id kadm.TopicID, parts map[int32]kgo.Offset) map[int32]fetchedOffset {
	out := map[int32]fetchedOffset{}
	for _, t := range c.fetched {
		if t.Topic != topic && (t.Topic != "" || kadm.TopicID(t.TopicID) != id) {
			continue
		}
		for _, p := range t.Partitions {
			if _, ours := parts[p.Partition]; !ours {
				continue
			}
			f := fetchedOffset{offset: p.Offset, epoch: p.LeaderEpoch}
			if p.Metadata != nil {
				f.metadata = *p.Metadata
			}
			out[p.Partition] = f
		}
	}
	return out
}

// placesOf finds them for the partitions of one topic.
func (c *consumer) placesOf(ctx context.Context, topic string, parts map[int32]kgo.Offset) (map[int32]place, error) {
	detail, err := c.t.describe(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts, err := c.adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	ends, err := c.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	fresh := kadm.Offsets{} // where to begin without a commit; asked for when there is such a partition
	out := map[int32]place{}
	for part, f := range c.committed(topic, detail.ID, parts) {
		start, _ := starts.Lookup(topic, part)
		end, _ := ends.Lookup(topic, part)
		p := place{id: detail.ID, offset: f.offset, epoch: f.epoch}
		switch {
		case f.offset < 0:
			if len(fresh) == 0 {
				if fresh, err = c.fresh(ctx, topic); err != nil {
					return nil, err
				}
			}
			o, ok := fresh.Lookup(topic, part)
			if !ok {
				return nil, fmt.Errorf("partition %d has no position", part)
			}
			p.offset, p.epoch, p.moved = o.At, -1, true
		case f.offset < start.Offset || f.offset > end.Offset:
			if p.offset, err = c.outside(topic, part, f.offset, start.Offset, end.Offset); err != nil {
				return nil, err
			}
			p.epoch, p.moved = -1, true
		default:
			if a := decodeAhead(f.metadata); a.fits(detail.ID, f.offset) {
				p.ahead = a
			}
		}
		out[part] = p
	}
	c.t.begin(topic, c.cfg.Group)
	return out, c.checkEpochs(ctx, topic, out)
}

// fresh is where a group begins in partitions in which it has no position: at
// Start if it has none in the whole topic, else at the first message, since
// such partitions have come later.
func (c *consumer) fresh(ctx context.Context, topic string) (kadm.Offsets, error) {
	d := transport.Declaration{Topic: topic, Group: c.cfg.Group, Start: c.cfg.Start}
	at, err := c.t.beginning(ctx, d)
	if err != nil {
		return nil, err
	}
	known, err := c.t.hasPosition(ctx, topic, c.cfg.Group)
	if err != nil || !known || d.Start != transport.StartLatest {
		return at, err
	}
	d.Start = transport.StartEarliest
	return c.t.beginning(ctx, d)
}

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
		"log_start", start, "log_end", end, "goes_on_at", to, "skipped", gone, "on_out_of_range", c.t.o.OnOutOfRange)
	return to, nil
}

// checkEpochs sets a position back to where the log was cut below it, and
// drops what is said to be done ahead where it was cut below that.
func (c *consumer) checkEpochs(ctx context.Context, topic string, ps map[int32]place) error {
	cut, err := c.cuts(ctx, topic, ps, func(p place) (int32, int64) { return p.epoch, p.offset })
	if err != nil {
		return err
	}
	for part, end := range cut {
		p := ps[part]
		c.log.Error("the log was cut below the position", "topic", topic, "partition", part, "position", p.offset, "goes_on_at", end)
		p.offset, p.epoch, p.ahead, p.moved = end, -1, nil, true
		ps[part] = p
	}
	cut, err = c.cuts(ctx, topic, ps, func(p place) (int32, int64) {
		if p.ahead == nil {
			return -1, 0
		}
		return p.ahead.epoch, p.ahead.top
	})
	for part := range cut {
		p := ps[part]
		c.log.Warn("the log was cut above the position: what was done ahead of it is handled again", "topic", topic, "partition", part, "position", p.offset)
		p.ahead = nil
		ps[part] = p
	}
	return err
}

// cuts asks where leader epochs end, and gives those ends that lie below what
// was read in the epoch.
func (c *consumer) cuts(ctx context.Context, topic string, ps map[int32]place, read func(place) (epoch int32, to int64)) (map[int32]int64, error) {
	var ask kadm.OffsetForLeaderEpochRequest
	for part, p := range ps {
		if epoch, _ := read(p); epoch >= 0 {
			ask.Add(topic, part, epoch)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	ends, err := c.adm.OffsetForLeaderEpoch(ctx, ask)
	if err != nil {
		return nil, err
	}
	cut := map[int32]int64{}
	for part, end := range ends[topic] {
		if end.Err != nil {
			return nil, fmt.Errorf("end of a leader epoch in partition %d: %w", part, end.Err)
		}
		if _, to := read(ps[part]); end.EndOffset >= 0 && end.EndOffset < to {
			cut[part] = end.EndOffset
		}
	}
	return cut, nil
}
