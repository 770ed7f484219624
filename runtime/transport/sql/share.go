package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

// share is one round of sharing out the partitions of a source.
type share struct {
	c   *consumer
	src *source
	tx  *stdsql.Tx

	kept    map[int64]int64 // part → epoch of the rows that are ours
	gained  []*spell
	surplus int
	wanting bool
	sights  map[string]*sighting
	first   bool
}

type partitionRow struct {
	part, epoch    int64
	owner, session string
}

// decide renews what is ours and takes what should be. It changes nothing of
// the consumer's: the transaction may be tried again.
func (sh *share) decide(ctx context.Context) error {
	c, src := sh.c, sh.src
	sh.first = !src.joined
	lease := c.t.o.lease.Microseconds()
	if sh.first && c.cfg.Instance.Set {
		if _, err := sh.c.db.exec(ctx, sh.tx, "DELETE FROM leat_members WHERE topic_id = ? AND group_id = ? AND instance = ?", src.id, src.group, c.cfg.Instance.ID); err != nil {
			return err
		}
	}
	_, err := sh.c.db.exec(ctx, sh.tx, "INSERT INTO leat_members (topic_id, group_id, session, instance, lease_until) VALUES (?, ?, ?, ?, "+c.t.d.clock()+" + ?)"+
		c.t.d.onConflict("topic_id, group_id, session", "lease_until"), src.id, src.group, c.session, c.cfg.Instance.ID, lease)
	if err != nil {
		return err
	}
	if c.db.Dialect == sqldb.Postgres { // an UPDATE locks in any order, and those who settle in that of parts
		if err := c.db.each(ctx, sh.tx, "SELECT part FROM leat_partitions WHERE topic_id = ? AND group_id = ? AND session = ? ORDER BY part"+c.t.d.locked(),
			[]any{src.id, src.group, c.session}, func(*stdsql.Rows) error { return nil }); err != nil {
			return err
		}
	}
	if _, err := sh.c.db.exec(ctx, sh.tx, "UPDATE leat_partitions SET lease_until = "+c.t.d.clock()+" + ? WHERE topic_id = ? AND group_id = ? AND session = ?", lease, src.id, src.group, c.session); err != nil {
		return err
	}
	// Members are looked at after what they own: one that comes meanwhile has
	// raised the epochs of what it took, or is seen.
	rows, err := sh.partitions(ctx)
	if err != nil {
		return err
	}
	members, err := sh.members(ctx)
	if err != nil {
		return err
	}
	owned, leaving := c.owned(src)
	var free []partitionRow
	mine := 0
	sh.kept = map[int64]int64{}
	for _, p := range rows {
		switch {
		case p.session == c.session && owned[p.part] != nil && owned[p.part].epoch == p.epoch:
			sh.kept[p.part] = p.epoch
			if !leaving[p.part] {
				mine++
			}
		case p.session == c.session, !slices.Contains(members, p.session): // ours, but revoked meanwhile; or nobody's
			free = append(free, p)
		}
	}
	quota := quota(len(rows), members, c.session, src.id)
	sh.surplus = mine - quota
	if mine < quota && len(free) > 0 {
		if err := sh.take(ctx, free, quota-mine); err != nil {
			return err
		}
		mine += len(sh.gained)
	}
	if mine >= quota {
		if err := sh.leave(ctx, free); err != nil {
			return err
		}
	}
	sh.wanting = mine < quota
	return nil
}

// quota is the share of one member. What does not divide goes to some of them,
// and for each topic to others: many small topics are shared as well.
func quota(partitions int, members []string, session string, topicID int64) int {
	slices.Sort(members)
	n := partitions / len(members)
	place := (int64(slices.Index(members, session)) + topicID) % int64(len(members))
	if place < int64(partitions%len(members)) {
		n++
	}
	return n
}

// members gives the sessions of those alive, us included, and removes the
// others.
func (sh *share) members(ctx context.Context) ([]string, error) {
	type member struct {
		session, instance string
		until, left       int64
	}
	var all []member
	err := sh.c.db.each(ctx, sh.tx, "SELECT session, instance, lease_until, lease_until - "+sh.c.t.d.clock()+" FROM leat_members WHERE topic_id = ? AND group_id = ?",
		[]any{sh.src.id, sh.src.group}, func(r *stdsql.Rows) error {
			var m member
			err := r.Scan(&m.session, &m.instance, &m.until, &m.left)
			all = append(all, m)
			return err
		})
	if err != nil {
		return nil, err
	}
	alive := []string{sh.c.session}
	sh.sights = map[string]*sighting{}
	for _, m := range all {
		if m.session == sh.c.session {
			continue
		}
		if m.instance == sh.c.cfg.Instance.ID && sh.c.cfg.Instance.Set && !sh.first {
			return nil, transport.Refuse(fmt.Errorf("instance %q: %w and has taken over: give each its own --instance", m.instance, transport.ErrFenced))
		}
		seen := sh.src.sightOf[m.session]
		if seen == nil || seen.until != m.until {
			seen = &sighting{until: m.until, left: time.Duration(m.left) * time.Microsecond, since: time.Now()}
		}
		if sh.dead(m.left, seen) {
			if locked, err := sh.inUse(ctx, m.session); err != nil {
				return nil, err
			} else if locked {
				continue
			}
			if _, err := sh.c.db.exec(ctx, sh.tx, "DELETE FROM leat_members WHERE topic_id = ? AND group_id = ? AND session = ?", sh.src.id, sh.src.group, m.session); err != nil {
				return nil, err
			}
			continue
		}
		sh.sights[m.session] = seen
		alive = append(alive, m.session)
	}
	return alive, nil
}

// dead tells whether a member's lease has run out. The database's clock alone
// does not decide, once we have watched for a while: it may have been set. A
// member that goes on renewing lives, and one that does not is dead even if
// its lease seems to last for hours. Its lease may be longer than ours, which
// is believed within reason.
func (sh *share) dead(left int64, seen *sighting) bool {
	unchanged, lease := time.Since(seen.since), sh.c.t.o.lease
	if left > 0 {
		lease = max(lease, min(seen.left, maxForeignLease))
		return unchanged > lease+lease/2
	}
	return sh.first || unchanged >= lease/2
}

// inUse tells whether another has locked the row of a member, and locks it where
// not. Nobody waits for a process that was stopped in the midst of this.
func (sh *share) inUse(ctx context.Context, session string) (bool, error) {
	found := 0
	err := sh.c.db.each(ctx, sh.tx, "SELECT 1 FROM leat_members WHERE topic_id = ? AND group_id = ? AND session = ?"+sh.c.t.d.free(),
		[]any{sh.src.id, sh.src.group, session}, func(r *stdsql.Rows) error { return r.Scan(&found) })
	return found == 0, err
}

func (sh *share) partitions(ctx context.Context) ([]partitionRow, error) {
	var all []partitionRow
	err := sh.c.db.each(ctx, sh.tx, "SELECT part, epoch, coalesce(owner, ''), coalesce(session, '') FROM leat_partitions WHERE topic_id = ? AND group_id = ? ORDER BY part",
		[]any{sh.src.id, sh.src.group}, func(r *stdsql.Rows) error {
			var p partitionRow
			err := r.Scan(&p.part, &p.epoch, &p.owner, &p.session)
			all = append(all, p)
			return err
		})
	return all, err
}

// take makes partitions ours, up to a number: those that no other was faster
// with. Whoever had one before can change nothing of it from the commit on.
// However many they are, it takes as many round trips: where each is slow, a
// lease would be over before one had taken them in turn.
func (sh *share) take(ctx context.Context, free []partitionRow, most int) error {
	c, src := sh.c, sh.src
	epochs, parts := map[int64]int64{}, make([]int64, len(free))
	for i, p := range free {
		epochs[p.part], parts[i] = p.epoch, p.part
	}
	var taken []int64
	spells := map[int64]*spell{}
	err := c.db.each(ctx, sh.tx, "SELECT part, epoch FROM leat_partitions WHERE topic_id = ? AND group_id = ? AND "+c.t.d.in("part")+" ORDER BY part LIMIT ?"+c.t.d.free(),
		[]any{src.id, src.group, c.t.d.numbers(parts), most}, func(r *stdsql.Rows) error {
			var part, epoch int64
			if err := r.Scan(&part, &epoch); err != nil || epoch != epochs[part] {
				return err
			}
			taken = append(taken, part)
			spells[part] = &spell{src: src, part: int32(part), epoch: epoch + 1, back: none, held: map[int64]bool{}} //nolint:gosec // at most maxPartitions
			sh.gained = append(sh.gained, spells[part])
			return nil
		})
	if err != nil || len(taken) == 0 {
		return err
	}
	these := " WHERE topic_id = ? AND group_id = ? AND " + c.t.d.in("part")
	_, err = c.db.exec(ctx, sh.tx, "UPDATE leat_partitions SET owner = ?, session = ?, epoch = epoch + 1, lease_until = "+c.t.d.clock()+" + ?"+these,
		c.cfg.Instance.ID, c.session, c.t.o.lease.Microseconds(), src.id, src.group, c.t.d.numbers(taken))
	if err != nil {
		return err
	}
	return c.db.each(ctx, sh.tx, "SELECT DISTINCT part FROM leat_attempts"+these, []any{src.id, src.group, c.t.d.numbers(taken)}, func(r *stdsql.Rows) error {
		var part int64
		err := r.Scan(&part)
		spells[part].failed = true
		return err
	})
}

// leave gives up the rows that name us though we have lost them, and have not
// taken them again: nobody else would take them while we live.
func (sh *share) leave(ctx context.Context, free []partitionRow) error {
	for _, p := range free {
		if p.session != sh.c.session || slices.ContainsFunc(sh.gained, func(s *spell) bool { return int64(s.part) == p.part }) {
			continue
		}
		_, err := sh.c.db.exec(ctx, sh.tx, "UPDATE leat_partitions SET owner = NULL, session = NULL, lease_until = 0 WHERE topic_id = ? AND group_id = ? AND part = ? AND epoch = ?",
			sh.src.id, sh.src.group, p.part, p.epoch)
		if err != nil {
			return err
		}
	}
	return nil
}

// apply makes the consumer follow what was committed.
func (sh *share) apply(began time.Time) bool {
	c, src := sh.c, sh.src
	src.joined, src.sightOf, src.wanting = true, sh.sights, sh.wanting
	c.lose(func(s *spell) bool { return s.src == src && sh.kept[int64(s.part)] != s.epoch })
	c.mu.Lock()
	var leave []*spell
	for _, s := range c.spells {
		if s.src == src {
			s.renewed = began
		}
	}
	for i := len(c.spells) - 1; i >= 0 && len(leave) < sh.surplus; i-- {
		if s := c.spells[i]; s.src == src && s.leaveBy.IsZero() {
			s.leaveBy = began.Add(c.t.o.lease)
			leave = append(leave, s)
		}
	}
	for _, s := range sh.gained {
		s.renewed = began
		s.a = transport.NewAssignment(c.cfg.Base, src.name, s.part)
		c.spells = append(c.spells, s)
		src.dueBy(began) // to find out
	}
	slices.SortStableFunc(c.spells, func(a, b *spell) int { return cmp.Compare(a.part, b.part) })
	c.mu.Unlock()
	for _, s := range leave {
		s.a.Leave()
	}
	if sh.first {
		c.wakeMembers()
	}
	return len(sh.gained) > 0 || len(leave) > 0
}

// owned gives our spells of src by partition, and which are being given up.
func (c *consumer) owned(src *source) (spells map[int64]*spell, leaving map[int64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spells, leaving = map[int64]*spell{}, map[int64]bool{}
	for _, s := range c.spells {
		if s.src == src {
			spells[int64(s.part)] = s
			leaving[int64(s.part)] = !s.leaveBy.IsZero()
		}
	}
	return spells, leaving
}
