package sql

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	backRows    = 4096 // ids looked at again in one scan of one partition
	floorEvery  = time.Second
	fullEvery   = 5 * time.Second
	seldomEvery = 30 * time.Second
	paceFactor  = 5 // a look back takes at most a fifth of the time
)

// rescan decides whether it is time to look back, and how far: to where the
// cursor was a second ago, and now and then to the very first row. Where
// nothing commits late, only hands can have inserted there, and only the
// latter is done, seldom.
func (c *consumer) rescan(now time.Time) bool {
	every, full := floorEvery, fullEvery
	if !c.t.d.lateCommits() {
		every, full = seldomEvery, seldomEvery
	}
	if now.Sub(c.rescanned) < max(every, paceFactor*c.lookTook) {
		return false
	}
	all := now.Sub(c.fullRescan) >= full
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spells {
		if all {
			s.lookBack(0)
		} else {
			s.lookBack(s.floor)
		}
		s.floor = s.cursor
	}
	c.rescanned = now
	if all {
		c.fullRescan = now
	}
	return true
}

// behind looks again at ids that were passed before: given back, due, or
// committed late. They come first, being the older ones.
func (c *consumer) behind(ctx context.Context, jobs []*job, b *budget) error {
	var looked []*job
	for _, j := range jobs {
		if j.back <= j.cursor {
			looked = append(looked, j)
		}
	}
	if len(looked) == 0 {
		return nil
	}
	began := time.Now()
	found := make(map[int64]*job)
	for chunk := range slices.Chunk(looked, scanParts) {
		if err := c.unheld(ctx, chunk, found); err != nil {
			return err
		}
	}
	c.lookTook = time.Since(began)
	if len(found) == 0 {
		return nil
	}
	return c.fetch(ctx, slices.Sorted(maps.Keys(found)), found, b)
}

// unheld adds to found what lies behind the cursors and is not held.
func (c *consumer) unheld(ctx context.Context, jobs []*job, found map[int64]*job) error {
	ids, err := c.t.d.behind(ctx, c.db, jobs, backRows)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, j := range jobs {
		for _, id := range ids[slot] {
			if _, held := j.s.held[id]; !held {
				found[id] = j
			}
		}
		if n := len(ids[slot]); n == backRows {
			j.seen = ids[slot][n-1] + 1
		}
	}
	return nil
}

// fitting is how many of ids are likely to fit, and one that does not.
func (b *budget) fitting(ids []int64, found map[int64]*job) int {
	n := 0
	for left := b.bytes; n < min(len(ids), b.rows) && left >= 0; n++ {
		left -= found[ids[n]].s.src.size(b.bytes)
	}
	return n
}

// fetch reads messages by id, until the budget is used up.
func (c *consumer) fetch(ctx context.Context, ids []int64, found map[int64]*job, b *budget) error {
	some := ids[:b.fitting(ids, found)]
	done := 0
	err := c.t.d.byID(ctx, c.db, some, func(m *row) (bool, error) {
		for some[done] < m.id { // no such message
			j := found[some[done]]
			j.orphans = append(j.orphans, some[done])
			done++
		}
		j := found[m.id]
		if int64(m.slot) != j.s.src.id { // another topic's, which a delivery names by mistake
			j.orphans = append(j.orphans, m.id)
		} else if !b.take(m, j.s) {
			return false, nil
		}
		done++
		return true, nil
	})
	if err != nil {
		return err
	}
	if b.need == 0 {
		for ; done < len(some); done++ {
			j := found[some[done]]
			j.orphans = append(j.orphans, some[done])
		}
	}
	for _, id := range ids[done:] {
		j := found[id]
		j.seen = min(j.seen, id)
	}
	return nil
}
