package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	busyWait    = 2 * time.Millisecond
	busyWaitMax = 50 * time.Millisecond
)

// InTx runs fn in a transaction that writes, and commits it if fn returns nil.
// While another program has the database locked it tries again, fn included,
// until ctx ends. ctx bounds the waiting for the lock; fn need not watch it, and
// is quicker if it gives its statements a context that is never cancelled.
func (d *DB) InTx(ctx context.Context, fn func(*sql.Tx) error) error {
	err := retryBusy(ctx, func() error { return inTx(ctx, d.Writer, fn) })
	if err == nil {
		d.prepareWrites(ctx)
		err = d.present()
	}
	return explain(d.Path, err)
}

func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	// Waiting for the one connection ends with ctx. What then runs does not:
	// watching ctx costs the driver a goroutine for each statement.
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// retryBusy runs fn until it returns something else than that the database is
// busy. The waits are jittered, so that writers of several processes do not
// keep meeting.
func retryBusy(ctx context.Context, fn func() error) error {
	for wait := busyWait; ; wait = min(2*wait, busyWaitMax) {
		err := fn()
		if !Busy(err) {
			return err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // spreads load, guards nothing
		case <-ctx.Done():
			return fmt.Errorf("locked by another program: %w (%w)", err, context.Cause(ctx))
		}
	}
}
