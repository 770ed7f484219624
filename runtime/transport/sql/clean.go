package sql

import (
	"context"
	"slices"
)

// unreadMessage is a condition on m, for databases in which others write
// meanwhile: no group waits for it, nor is still to be given it. Each group's
// rows are looked up by their whole key; %s keeps PostgreSQL from joining.
const unreadMessage = ` NOT EXISTS (SELECT 1 FROM leat_groups g WHERE g.topic_id = m.topic_id AND (
  EXISTS (SELECT 1 FROM leat_deliveries d WHERE d.topic_id = m.topic_id AND d.group_id = g.id AND d.part = m.part AND d.id = m.id%[1]s)
  OR EXISTS (SELECT 1 FROM leat_delayed d WHERE d.topic_id = m.topic_id AND d.group_id = g.id AND d.part = m.part AND d.id = m.id%[1]s)
  OR (g.fill_from < m.id AND g.fill_to >= m.id AND m.gen < g.gen))%[1]s)`

const (
	uncleanMost = 100_000 // ids; what is beyond goes with its topic's retention
	cleanBatch  = 2000    // ids in one transaction
)

// audience is what is known of who reads a source's topic: the generation, and
// whether ours is its only group.
func (c *consumer) audience(src *source) (gen int64, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return src.gen, src.groups == 1
}

// survey looks who reads the topic.
func (c *consumer) survey(ctx context.Context, src *source) error {
	var gen int64
	var groups int
	err := c.db.first(ctx, nil, "SELECT t.gen, (SELECT count(*) FROM leat_groups g WHERE g.topic_id = t.id) FROM leat_topics t WHERE t.id = ?", []any{src.id}, &gen, &groups)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	src.gen, src.groups = gen, groups
	return nil
}

// clean deletes messages that ours was the last group to be done with, after
// the commit of that. What fails is tried again with the next ones. It holds
// the gate, as publishers do, so that it cannot overlook a group that comes.
func (c *consumer) clean(ctx context.Context, src *source, ids []int64) {
	if !c.toClean(src, ids) {
		return
	}
	for surveyed := false; ; {
		some := c.nextToClean(src)
		if len(some) == 0 {
			return
		}
		gen, _ := c.audience(src)
		known, err := c.t.d.clean(ctx, c.db, src.topic, gen, some)
		if err == nil && known {
			continue
		}
		c.again(src, some)
		if err != nil || surveyed || c.survey(ctx, src) != nil {
			c.mu.Lock()
			src.cleaning = false
			c.mu.Unlock()
			return // who settles or reads next meets it too
		}
		surveyed = true
	}
}

// toClean adds ids, and tells whether nobody is cleaning yet: else that one
// goes on with these. The keeper settles too, and must not wait.
func (c *consumer) toClean(src *source, ids []int64) bool {
	c.again(src, ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := src.cleaning
	src.cleaning = true
	return !busy
}

func (c *consumer) again(src *source, ids []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	src.unclean = append(src.unclean, ids...)
	if over := len(src.unclean) - uncleanMost; over > 0 {
		src.unclean = slices.Delete(src.unclean, 0, over)
	}
}

// nextToClean takes some ids out. Where there are none, cleaning is over.
func (c *consumer) nextToClean(src *source) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(src.unclean), cleanBatch)
	some := slices.Clone(src.unclean[:n])
	src.unclean = slices.Delete(src.unclean, 0, n)
	src.cleaning = n > 0
	return some
}
