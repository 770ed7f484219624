package dedupsql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
)

// sqlite runs all ops in one transaction, each by itself: nothing else writes
// meanwhile, and no round trip is to be saved.
type sqlite struct{ *Store }

// The statements of a transaction, by their place in queries.
const (
	qClaim = iota
	qLook
	qRenew
	qDone
	qRelease
	numQueries
)

const claimSQL = `INSERT INTO leat_dedup AS d (scope, key, token, done, body, until, owner)
VALUES (?1, ?2, ` + sqldb.Now + `, 0, ?3, ` + sqldb.Now + ` + ?4, ?5)
ON CONFLICT (scope, key) DO UPDATE
SET token = max(d.token + 1, excluded.token), done = 0, body = excluded.body, until = excluded.until, owner = excluded.owner
WHERE d.until <= ` + sqldb.Now + ` OR (d.done = 0 AND ?6 <> '' AND d.owner <> ?5 AND substr(d.owner, 17) = ?6)
RETURNING token`

const sweepSQL = `DELETE FROM leat_dedup WHERE (scope, key) IN
(SELECT scope, key FROM leat_dedup WHERE until <= ` + sqldb.Now + ` - 1000000 ORDER BY until LIMIT ?)`

func queries() [numQueries]string {
	return [...]string{
		qClaim:   claimSQL,
		qLook:    `SELECT done, body, until - ` + sqldb.Now + ` FROM leat_dedup WHERE scope = ? AND key = ?`,
		qRenew:   `UPDATE leat_dedup SET until = ` + sqldb.Now + ` + ? WHERE scope = ? AND key = ? AND token = ? AND done = 0`,
		qDone:    `UPDATE leat_dedup SET done = 1, until = ` + sqldb.Now + ` + ? WHERE scope = ? AND key = ? AND token = ?`,
		qRelease: `UPDATE leat_dedup SET token = token + 1, until = ` + sqldb.Now + ` WHERE scope = ? AND key = ? AND token = ? AND done = 0`,
	}
}

func (s *sqlite) run(ctx context.Context, ops []*op) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		t := &transaction{Store: s.Store, tx: tx}
		for _, o := range ops {
			if err := t.exec(context.WithoutCancel(ctx), o); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) sweep(ctx context.Context, limit int) (n int64, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, sweepSQL, limit)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return n, err
}

// transaction is one of ops, and the statements it has used.
type transaction struct {
	*Store

	tx *sql.Tx
	st [numQueries]*sql.Stmt
}

func (t *transaction) statement(ctx context.Context, q int) (*sql.Stmt, error) {
	if t.st[q] != nil {
		return t.st[q], nil
	}
	var err error
	t.st[q], err = t.db.Write(ctx, t.tx, queries()[q]) //nolint:sqlclosecheck // ends with the transaction
	return t.st[q], err
}

func (t *transaction) exec(ctx context.Context, o *op) error {
	o.err = nil // this may be the second try
	for i := range o.claims {
		c := &o.claims[i]
		var err error
		switch o.kind {
		case opClaim:
			o.state, err = t.claim(ctx, c, o.span)
		case opRenew:
			_, err = t.update(ctx, qRenew, o.span.Microseconds(), c.Scope, c.Key, c.Token)
		case opDone:
			var n int64
			if n, err = t.update(ctx, qDone, o.span.Microseconds(), c.Scope, c.Key, c.Token); n == 0 {
				o.err = middleware.ErrLost
			}
		case opRelease:
			_, err = t.update(ctx, qRelease, c.Scope, c.Key, c.Token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// update runs a statement and counts the rows it has met.
func (t *transaction) update(ctx context.Context, q int, args ...any) (int64, error) {
	st, err := t.statement(ctx, q) //nolint:sqlclosecheck // ends with the transaction
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// row runs a statement that gives one row at most.
func (t *transaction) row(ctx context.Context, q int, args, dest []any) error {
	st, err := t.statement(ctx, q) //nolint:sqlclosecheck // ends with the transaction
	if err != nil {
		return err
	}
	return st.QueryRowContext(ctx, args...).Scan(dest...)
}

func (t *transaction) claim(ctx context.Context, c *middleware.DedupClaim, lease time.Duration) (state middleware.DedupState, err error) {
	var body []byte
	if c.Body != (middleware.DedupBody{}) {
		body = c.Body[:]
	}
	err = t.row(ctx, qClaim, []any{c.Scope, c.Key, body, lease.Microseconds(), t.owner, t.instance}, []any{&state.Token})
	if err == nil {
		state.Status = middleware.DedupFresh
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return state, err
	}
	var done bool
	var left int64
	if err := t.row(ctx, qLook, []any{c.Scope, c.Key}, []any{&done, &body, &left}); err != nil {
		return state, err
	}
	if !done {
		return middleware.DedupState{Status: middleware.DedupHeld, Left: time.Duration(left) * time.Microsecond}, nil
	}
	state.Status = middleware.DedupDone
	copy(state.Body[:], body)
	return state, nil
}
