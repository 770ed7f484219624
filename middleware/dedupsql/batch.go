package dedupsql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/leat-io/leat/middleware"
)

// item is one claim of an op.
type item struct {
	*op

	claim *middleware.DedupClaim
	lost  bool // of opDone: somebody else has it
}

// batch is items of one kind and different keys, sorted by key. One statement
// does them all, and meets the rows in that order: so no two of them wait for
// each other, in whatever process.
type batch []*item

// inBatches gives ops to run in batches. What is asked of one key stays in its
// order. An error is that of its batch's ops alone.
func inBatches(ops []*op, run func(kind opKind, b batch) error) {
	var rounds [][opRelease + 1]batch
	seen := map[middleware.DedupKey]int{}
	for _, o := range ops {
		o.err = nil
		for i := range o.claims {
			k := o.claims[i].DedupKey
			k.Body = middleware.DedupBody{} // not a part of the name
			round := seen[k]
			seen[k]++
			if round == len(rounds) {
				rounds = append(rounds, [opRelease + 1]batch{})
			}
			rounds[round][o.kind] = append(rounds[round][o.kind], &item{op: o, claim: &o.claims[i]})
		}
	}
	for _, round := range rounds {
		for kind, b := range round {
			if len(b) == 0 {
				continue
			}
			slices.SortFunc(b, func(x, y *item) int {
				return cmp.Or(cmp.Compare(x.claim.Scope, y.claim.Scope), cmp.Compare(x.claim.Key, y.claim.Key))
			})
			err := run(opKind(kind), b)
			for _, it := range b {
				switch {
				case err != nil:
					it.err = err
				case it.lost:
					it.err = middleware.ErrLost
				}
			}
		}
	}
}

// body is NULL where bodies are not compared.
func (it *item) body() []byte {
	if it.claim.Body == (middleware.DedupBody{}) {
		return nil
	}
	return it.claim.Body[:]
}

// find is the item of a key, nil where there is none.
func (b batch) find(scope, key string) *item {
	i, ok := slices.BinarySearchFunc(b, middleware.DedupKey{Scope: scope, Key: key}, func(it *item, k middleware.DedupKey) int {
		return cmp.Or(cmp.Compare(it.claim.Scope, k.Scope), cmp.Compare(it.claim.Key, k.Key))
	})
	if !ok {
		return nil
	}
	return b[i]
}

// each gives the rows of a query to fn.
func (s *Store) each(ctx context.Context, tx *sql.Tx, query string, args []any, fn func(*sql.Rows) error) error {
	rows, err := s.db.Query(ctx, tx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// keys are the columns of a batch that name its rows.
func (b batch) keys() (scopes, keys []string) {
	scopes, keys = make([]string, len(b)), make([]string, len(b))
	for i, it := range b {
		scopes[i], keys[i] = it.claim.Scope, it.claim.Key
	}
	return scopes, keys
}

// found is what a claim comes to that met a row with time left.
func (it *item) found(done bool, body []byte, left int64) {
	it.state = middleware.DedupState{Status: middleware.DedupHeld, Left: time.Duration(max(0, left)) * time.Microsecond}
	if done && left > 0 {
		it.state = middleware.DedupState{Status: middleware.DedupDone}
		copy(it.state.Body[:], body)
	}
}
