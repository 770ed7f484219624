package sql

import (
	"context"
	stdsql "database/sql"
	"sync"
	"time"
)

// clockStep is by how much the database's clock has to differ from what our
// own makes of it to have been set; less is drift, and followed.
const clockStep = time.Second

// clock is the time by which waits are written and read: the database's, less
// what that was set by since the consumer was opened. So a wait lasts as long
// as it should, whatever is done to the clock meanwhile.
type clock struct {
	mu   sync.Mutex
	base int64     // microseconds, at read
	read time.Time // zero: never
	set  int64     // by how much the database's is ahead, in microseconds
}

// now is in microseconds since 1970.
func (k *clock) now() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.base + time.Since(k.read).Microseconds()
}

// follow compares the database's clock with ours. It is read within a
// transaction, so that nobody waits for the lock meanwhile.
func (c *consumer) follow(ctx context.Context, tx *stdsql.Tx) error {
	var db int64
	before := time.Now()
	if err := c.db.first(ctx, tx, "SELECT "+c.t.d.clock(), nil, &db); err != nil {
		return err
	}
	c.clock.observe(db, before, time.Now())
	return nil
}

func (k *clock) observe(db int64, before, after time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read.IsZero() {
		k.base, k.read = db, after
		return
	}
	if after.Sub(before) > clockStep/2 {
		return // we were held up, and cannot tell by how much
	}
	ahead := db - k.set - k.base - after.Sub(k.read).Microseconds()
	if ahead > clockStep.Microseconds() || ahead < -clockStep.Microseconds() {
		k.set += ahead
	}
	k.base, k.read = db-k.set, after
}
