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
	found, err := c.settleIn(ctx, offsets)
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
		clear(offsets[topic])
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

// settleIn finds the places of all partitions that have come. One whose place
// cannot be known yet is left out, and does not hold up the others.
func (c *consumer) settleIn(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]place, error) {
	found := map[string]map[int32]place{}
	at := kadm.Offsets{}
	for topic, parts := range offsets {
		ps, err := c.placesOf(ctx, topic, parts, at)
		if err != nil {
			return nil, fmt.Errorf("position in topic %q: %w", topic, err)
		}
		found[topic] = ps
	}
	if err := c.commitPlaces(ctx, at); err != nil {
		return nil, err
	}
	c.own(found)
	for topic, ps := range found {
		if len(ps) > 0 {
			c.t.noteBegun(topic, c.cfg.Group)
		}
		var left []int32
		for part := range offsets[topic] {
			if _, begun := ps[part]; !begun {
				left = append(left, part)
			}
		}
		if len(left) > 0 {
			c.log.Warn("partitions without a position have no leader: they are read when they have one", "topic", topic, "partitions", left)
			c.leaveOut(topic, left)
			go c.lookAgain(c.cl.Context(), topic) //nolint:contextcheck // it outlives this session of the group
		}
	}
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
		c.interrupted = false
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

// placesOf finds them for the partitions of one topic, each by itself: one that
// cannot be asked now begins at its commit, and whether that is in the log is
// seen when it is fetched. What is to be committed first goes into at.
func (c *consumer) placesOf(ctx context.Context, topic string, parts map[int32]kgo.Offset, at kadm.Offsets) (map[int32]place, error) {
	detail, err := c.t.describe(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts, err := listed(ctx, c.adm.ListStartOffsets, topic)
	if err := lasting(ctx, err); err != nil {
		return nil, err
	}
	ends, err := listed(ctx, c.adm.ListEndOffsets, topic)
	if err := lasting(ctx, err); err != nil {
		return nil, err
	}
	out := map[int32]place{}
	for part, f := range c.committed(topic, detail.ID, parts) {
		if f.offset < 0 {
			continue
		}
		p := place{id: detail.ID, offset: f.offset, epoch: f.epoch}
		if a := decodeAhead(f.metadata); a.fits(detail.ID, f.offset) {
			p.ahead = a
		}
		out[part] = p
	}
	if err := c.check(ctx, topic, out, starts, ends); err != nil {
		return nil, err
	}
	if len(out) < len(parts) {
		if err := c.beginNew(ctx, topic, detail.ID, parts, out, at); err != nil {
			return nil, err
		}
	}
	for part, p := range out {
		if p.moved {
			at.Add(kadm.Offset{Topic: topic, TopicID: p.id, Partition: part, At: p.offset, LeaderEpoch: p.epoch})
		}
	}
	return out, nil
}

// lasting is err if it is no matter of partitions that cannot be asked now.
func lasting(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isPermanent(err) {
		return err
	}
	return nil
}

// beginNew adds the places of those parts that are not in out, since they had
// no position when they came. The group begins at Start if it has none in the
// whole topic, which then is written down for all partitions, so that no other
// member takes its own for one that was made later: such are read from their
// first message.
func (c *consumer) beginNew(ctx context.Context, topic string, id kadm.TopicID, parts map[int32]kgo.Offset, out map[int32]place, at kadm.Offsets) error {
	d := transport.Declaration{Topic: topic, Group: c.cfg.Group, Start: c.cfg.Start}
	fresh, err := c.t.beginning(ctx, d) // before positions, as in declareGroup
	if err := lasting(ctx, err); err != nil {
		return err
	}
	found, err := positions(ctx, c.adm, topic, c.cfg.Group)
	if err != nil {
		return err
	}
	last := int32(-1) // with a position
	for part, o := range found[topic] {
		if o.At >= 0 {
			last = max(last, part)
		}
	}
	added := fresh
	if d.Start == transport.StartLatest && last >= 0 {
		d.Start = transport.StartEarliest
		added, err = c.t.beginning(ctx, d)
		if err := lasting(ctx, err); err != nil {
			return err
		}
	}
	for part := range parts {
		if _, known := out[part]; known {
			continue
		}
		if o, ok := found.Lookup(topic, part); ok && o.At >= 0 { // by another member, meanwhile
			out[part] = place{id: id, offset: o.At, epoch: o.LeaderEpoch}
			continue
		}
		from := fresh
		if part > last {
			from = added
		}
		if o, ok := from.Lookup(topic, part); ok {
			out[part] = place{id: id, offset: o.At, epoch: -1, moved: true}
		}
	}
	if last < 0 && d.Start == transport.StartLatest {
		fresh.Each(func(o kadm.Offset) {
			o.TopicID = id
			at.Add(o)
		})
	}
	return nil
}
