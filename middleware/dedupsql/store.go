// Package dedupsql is a [middleware.DedupStore] in a database. It is apart from
// middleware so that who does not use it links no database.
package dedupsql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

// Store keeps dedup keys in a database, shared by all workers on it. Time
// is the database's. What comes in at the same time shares a transaction.
//
// A process keeps one for all its consumers. With an instance that is Set it
// takes over at once what an earlier process of that name has claimed, as
// after a crash; two living processes must not share such a name.
type Store struct {
	db       *sqldb.DB
	instance string // empty unless set
	owner    string // a prefix of fixed length, one for each process, and the instance
	commits  committer

	// Only the committer's goroutine uses these.
	swept time.Time
	grown int // rows left behind since
}

// New uses a database that somebody else closes, after Close.
func New(db *sqldb.DB, instance transport.Instance) *Store {
	s := &Store{db: db}
	if instance.Set {
		var process [8]byte
		_, _ = rand.Read(process[:]) // never fails
		s.instance = instance.ID
		s.owner = hex.EncodeToString(process[:]) + instance.ID
	}
	s.commits.flush = s.flush
	return s
}

// Close waits until what was asked for is done. Later calls of other methods
// return [transport.ErrClosed].
func (s *Store) Close() error {
	s.commits.close()
	return nil
}

// Claim takes a key.
func (s *Store) Claim(ctx context.Context, k middleware.DedupKey, lease time.Duration) (middleware.DedupState, error) {
	o := &op{kind: opClaim, claims: []middleware.DedupClaim{{DedupKey: k}}, span: lease}
	if err := s.commits.do(ctx, o); err != nil {
		return middleware.DedupState{}, err
	}
	return o.state, nil
}

// Renew gives claims another lease.
func (s *Store) Renew(ctx context.Context, lease time.Duration, claims ...middleware.DedupClaim) error {
	return s.commits.do(ctx, &op{kind: opRenew, claims: claims, span: lease})
}

// Done marks a key.
func (s *Store) Done(ctx context.Context, c middleware.DedupClaim, window time.Duration) error {
	return s.commits.do(ctx, &op{kind: opDone, claims: []middleware.DedupClaim{c}, span: window})
}

// Release gives a key back.
func (s *Store) Release(ctx context.Context, c middleware.DedupClaim) error {
	return s.commits.do(ctx, &op{kind: opRelease, claims: []middleware.DedupClaim{c}})
}

// The statements of a transaction, by their place in queries.
const (
	qClaim = iota
	qLook
	qRenew
	qDone
	qRelease
	numQueries
)

// A token is at least the time of its claim, and a released claim leaves a
// row with a higher one for a while: so the tokens of a key only ever rise, also
// over rows swept away, and a renewal on its way cannot bring a claim back.
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

// flush runs ops in one transaction, in their order.
func (s *Store) flush(ops []*op) error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		t := &transaction{Store: s, tx: tx}
		for _, o := range ops {
			if err := t.exec(context.WithoutCancel(ctx), o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, o := range ops {
		if o.kind == opDone || o.kind == opRelease {
			s.grown++
		}
	}
	s.sweep(ctx)
	return nil
}

// flushTimeout bounds how long one transaction waits for the database.
const flushTimeout = 10 * time.Second

// transaction is one run of flush, and the statements it has used.
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

// How much is swept at once, and how long after the last time at most while
// there is work. Twice as many go as come, so the table does not grow behind.
const (
	sweepBatch = 1000
	sweepEvery = time.Minute
)

// sweep deletes rows past their time, a bounded batch in a transaction of its
// own. If it fails there is nothing to tell: the rows mean nothing any more,
// and the next sweep finds them.
func (s *Store) sweep(ctx context.Context) {
	if s.grown < sweepBatch/2 && time.Since(s.swept) < sweepEvery {
		return
	}
	s.swept, s.grown = time.Now(), 0
	_ = s.db.InTx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, sweepSQL, sweepBatch)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err == nil && n == sweepBatch {
			s.grown = sweepBatch // there is more
		}
		return nil
	})
}
