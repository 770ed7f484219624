// Package dedupsql is a [middleware.DedupStore] in a database. It is apart from
// middleware so that who does not use it links no database.
package dedupsql

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
	rows     rows
	commits  committer

	// Only the committer's goroutine uses these.
	swept time.Time
	grown int // rows left behind since
}

// ownerPrefix is the length of what tells processes of one name apart.
const ownerPrefix = 16

// rows are those of one kind of database.
type rows interface {
	// run does ops in their order, or as if: those of different keys know
	// nothing of each other. It says in the ops what they came to, unless it
	// fails as a whole.
	run(ctx context.Context, ops []*op) error
	// sweep deletes up to limit rows that are past their time, and says how many.
	sweep(ctx context.Context, limit int) (int64, error)
}

// New uses a database that somebody else closes, after Close.
func New(db *sqldb.DB, instance transport.Instance) *Store {
	s := &Store{db: db}
	if instance.Set {
		var process [ownerPrefix / 2]byte
		_, _ = rand.Read(process[:]) // never fails
		s.instance = instance.ID
		s.owner = hex.EncodeToString(process[:]) + instance.ID // ownerPrefix, and the name
	}
	switch db.Dialect {
	case sqldb.Postgres:
		s.rows = &postgres{s}
	case sqldb.MySQL:
		s.rows = &mysql{s}
	case sqldb.SQLite:
		s.rows = &sqlite{s}
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

// A token is at least the time of its claim, and a released claim leaves a
// row with a higher one for a while: so the tokens of a key only ever rise, also
// over rows swept away, and a renewal on its way cannot bring a claim back.

// flush does what has come in.
func (s *Store) flush(ops []*op) error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.rows.run(ctx, ops); err != nil {
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
	if n, err := s.rows.sweep(ctx, sweepBatch); err == nil && n == sweepBatch {
		s.grown = sweepBatch // there is more
	}
}
