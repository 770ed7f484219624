package sql

import (
	"context"
	stdsql "database/sql"
	"time"
)

// handOver ends the spells that are to be given up and have nothing
// outstanding any more, or no time left.
func (c *consumer) handOver(ctx context.Context) {
	var gone []*spell
	c.lose(func(s *spell) bool {
		if s.leaveBy.IsZero() || (s.outstanding() > 0 && time.Now().Before(s.leaveBy)) {
			return false
		}
		gone = append(gone, s)
		return true
	})
	if len(gone) == 0 {
		return
	}
	err := c.db.InTx(ctx, func(tx *stdsql.Tx) error {
		for _, s := range gone {
			_, err := c.db.exec(ctx, tx, "UPDATE leat_partitions SET owner = NULL, session = NULL, lease_until = 0 WHERE topic_id = ? AND group_id = ? AND part = ? AND epoch = ?",
				s.src.id, s.src.group, s.part, s.epoch)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.fail(refuse(err)) // the rows still name us: only closing gives them up
		return
	}
	c.wakeMembers()
}

// resign gives up all partitions and the membership.
func (c *consumer) resign(ctx context.Context) error {
	err := c.db.InTx(ctx, func(tx *stdsql.Tx) error {
		for _, src := range c.sources {
			for _, query := range []string{
				"UPDATE leat_partitions SET owner = NULL, session = NULL, lease_until = 0 WHERE topic_id = ? AND group_id = ? AND session = ?",
				"DELETE FROM leat_members WHERE topic_id = ? AND group_id = ? AND session = ?",
			} {
				if _, err := c.db.exec(ctx, tx, query, src.id, src.group, c.session); err != nil {
					return err
				}
			}
		}
		return nil
	})
	c.wakeMembers()
	return refuse(err)
}
