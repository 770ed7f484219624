package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// leftOut tells of the partitions that are ours and cannot be read: those that
// have no position, and no leader that could be asked where they begin, and
// those that stand still before what is too large.
type leftOut struct {
	why   string
	since time.Time // when there were none
}

// LeftOut is for the status.
func (c *consumer) LeftOut() (why string, since time.Time) {
	if !c.admitted.Load() {
		return "the group has not let it in yet: it waits for a member that was killed, for as long as that one's session_timeout, or for one that does not let go", c.began
	}
	if l := c.partial.Load(); l != nil {
		return l.why, l.since
	}
	return "", time.Time{}
}

// leaveOut adds to them.
func (c *consumer) leaveOut(topic string, parts []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(c.left[topic], parts...) //nolint:gocritic // it becomes that
	slices.Sort(all)
	c.left[topic] = slices.Compact(all)
	c.tellLeft()
}

// letGo forgets those that are not ours any more. c.mu is held.
func (c *consumer) letGo(gone map[string][]int32) {
	for topic, parts := range gone {
		c.left[topic] = slices.DeleteFunc(c.left[topic], func(p int32) bool { return slices.Contains(parts, p) })
	}
	maps.DeleteFunc(c.left, func(_ string, parts []int32) bool { return len(parts) == 0 })
	c.tellLeft()
}

// tellLeft has the status say so. c.mu is held.
func (c *consumer) tellLeft() {
	var texts []string
	for _, topic := range slices.Sorted(maps.Keys(c.left)) {
		texts = append(texts, fmt.Sprintf("topic %q: partitions %v have no leader, and the group has no position in them: they are read when they have one", topic, c.left[topic]))
	}
	for _, s := range c.spells {
		if s.stuck != "" {
			texts = append(texts, fmt.Sprintf("partition %d of topic %q stands still: %s", s.part, s.topic, s.stuck))
		}
	}
	if len(texts) == 0 {
		c.partial.Store(nil)
		return
	}
	since := time.Now()
	if l := c.partial.Load(); l != nil {
		since = l.since
	}
	c.partial.Store(&leftOut{strings.Join(texts, "; "), since})
}

// leftOf are those of a topic.
func (c *consumer) leftOf(topic string) []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.left[topic])
}

// lookAgain ends the consumer when one of them can be asked where it begins and
// ends: whoever supervises it opens it again, and it finds their places.
func (c *consumer) lookAgain(ctx context.Context, topic string) {
	for tries := 0; pause(ctx, tries) == nil; tries++ {
		parts := c.leftOf(topic)
		if len(parts) == 0 {
			return
		}
		ends, _ := listed(ctx, c.adm.ListEndOffsets, topic)
		for _, part := range parts {
			if _, ok := ends[part]; ok {
				c.mu.Lock()
				c.fail(fmt.Errorf("partition %d of topic %q has a leader again: the group is joined anew to read it", part, topic))
				c.mu.Unlock()
				return
			}
		}
	}
}

// startLook is how often the beginning of the log is looked at where a partition
// stands still.
const startLook = 2 * time.Second

// lookAtStart ends the consumer when the log has dropped what a partition stands
// still before, which the client would not notice; likewise.
func (c *consumer) lookAtStart(ctx context.Context, s *spell, offset int64) {
	ticker := time.NewTicker(startLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		still := s.stuck != "" && !s.frozen
		c.mu.Unlock()
		if !still {
			return
		}
		starts, _ := listed(ctx, c.adm.ListStartOffsets, s.topic)
		if start, ok := starts[s.part]; ok && start > offset {
			c.mu.Lock()
			c.fail(fmt.Errorf("partition %d of topic %q stood still at offset %d, which the log has dropped: the group is joined anew to read on", s.part, s.topic, offset))
			c.mu.Unlock()
			return
		}
	}
}
