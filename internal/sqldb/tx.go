package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	busyWait    = 2 * time.Millisecond
	busyWaitMax = 50 * time.Millisecond
	// conflicts is how often in a row a transaction may lose against others
	// before that is an error.
	conflicts = 20
	// stale is how many connections in a row may turn out to have ended.
	stale = 100
)

// InTx runs fn in a transaction that writes, and commits it if fn returns nil.
// After a conflict with another transaction, or while another program has an
// SQLite file locked, it runs fn again, until ctx ends.
//
// On SQLite ctx bounds the waiting for the lock; fn need not watch it, and is
// quicker if it gives its statements a context that is never cancelled. On a
// server the end of ctx ends the transaction too. An error other than of fn may
// mean that the commit's answer was lost: what was written may be there.
func (d *DB) InTx(ctx context.Context, fn func(*sql.Tx) error) error {
	if d.Dialect != SQLite {
		o := &sql.TxOptions{}
		if d.Dialect == Postgres { // MySQL would take a round trip to be told what its connections know
			o.Isolation = sql.LevelReadCommitted
		}
		return d.Retry(ctx, func() error { return inTx(ctx, d.Writer, o, fn) })
	}
	err := retryBusy(ctx, func() error { return inTx(ctx, d.Writer, nil, fn) })
	if err == nil {
		d.prepareWrites(ctx)
		err = d.present()
	}
	return explain(d.Path, err)
}

// Retry runs fn until it returns something else than a [Conflict], a bounded
// number of times with growing pauses, and explains its error.
func (d *DB) Retry(ctx context.Context, fn func() error) error {
	wait := busyWait
	for n := 1; ; n++ {
		err := fn()
		if !Conflict(err) {
			return d.explain(err)
		}
		if n == conflicts {
			return fmt.Errorf("database %s: %d conflicts with other transactions in a row: %w", d.Name, n, err)
		}
		d.retries.Add(1)
		select {
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // spreads load, guards nothing
		case <-ctx.Done():
			return fmt.Errorf("database %s: conflict with another transaction: %w (%w)", d.Name, err, context.Cause(ctx))
		}
		wait = min(2*wait, 4*busyWaitMax)
	}
}

// inTx runs one transaction. Options are those of a server; for SQLite there are none.
func inTx(ctx context.Context, db *sql.DB, o *sql.TxOptions, fn func(*sql.Tx) error) error {
	// Waiting for SQLite's one connection ends with ctx. What then runs does
	// not: watching ctx costs the driver a goroutine for each statement.
	conn, tx, err := begin(ctx, db, o)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := fn(tx); err != nil {
		if rolling := rollback(tx); rolling != nil {
			err = errors.Join(err, rolling)
		}
		return err
	}
	return tx.Commit()
}

func begin(ctx context.Context, db *sql.DB, o *sql.TxOptions) (conn *sql.Conn, tx *sql.Tx, err error) {
	beginning := ctx
	if o == nil {
		beginning = context.WithoutCancel(ctx)
	}
	conn, err = connection(ctx, db, func(conn *sql.Conn) (err error) {
		tx, err = conn.BeginTx(beginning, o)
		return err
	})
	return conn, tx, err
}

// connection gives one on which first has run. It passes over those that the
// server has ended while they were idle.
func connection(ctx context.Context, db *sql.DB, first func(*sql.Conn) error) (*sql.Conn, error) {
	for left := stale; ; left-- {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		err = first(conn)
		if err == nil {
			return conn, nil
		}
		_ = conn.Close() // it has its error
		if left == 0 || !ended(err) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// rollback has nothing to add where the transaction is over already, or the
// connection gone.
func rollback(tx *sql.Tx) error {
	err := tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn) || network(err) {
		return nil
	}
	return err
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
