package sql

import (
	"context"
)

// unreadMessage is a condition on m, for databases in which others write
// meanwhile: no group waits for it, nor is still to be given it. Each group's
// rows are looked up by their whole key; %s keeps PostgreSQL from joining.
const unreadMessage = ` NOT EXISTS (SELECT 1 FROM leat_groups g WHERE g.topic_id = m.topic_id AND (
  EXISTS (SELECT 1 FROM leat_deliveries d WHERE d.topic_id = m.topic_id AND d.group_id = g.id AND d.part = m.part AND d.id = m.id%[1]s)
  OR EXISTS (SELECT 1 FROM leat_delayed d WHERE d.topic_id = m.topic_id AND d.group_id = g.id AND d.part = m.part AND d.id = m.id%[1]s)
  OR (g.fill_from < m.id AND g.fill_to >= m.id AND m.gen < g.gen))%[1]s)`

const uncleanMost = 100_000 // ids; what is beyond goes with its topic's retention

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
	src.unclean = append(src.unclean, ids...)
	if over := len(src.unclean) - uncleanMost; over > 0 {
		src.unclean = src.unclean[over:]
	}
	for range 2 {
		if len(src.unclean) == 0 {
			return
		}
		gen, _ := c.audience(src)
		known, err := c.t.d.clean(ctx, c.db, src.topic, gen, src.unclean)
		if err == nil && known {
			src.unclean = src.unclean[:0]
			return
		}
		if err == nil {
			err = c.survey(ctx, src)
		}
		if err != nil {
			return // who settles or reads next meets it too
		}
	}
}
