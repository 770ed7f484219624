package dedupsql

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
)

// mysql runs each batch as one statement, or for claims as one transaction.
// Every statement meets its rows by their primary key, and so in their order.
type mysql struct{ *Store }

func (m *mysql) run(ctx context.Context, ops []*op) error {
	now := sqldb.MySQL.Now()
	inBatches(ops, func(kind opKind, b batch) error {
		switch kind {
		case opClaim:
			return m.claim(ctx, b)
		case opRenew:
			return m.update(ctx, b, "until = "+now+" + ?", " AND done = 0")
		case opDone:
			return m.update(ctx, b, "done = 1, until = "+now+" + ?", "")
		case opRelease:
			return m.update(ctx, b, "token = token + 1, until = "+now+" + 0 * ?", " AND done = 0")
		}
		return nil
	})
	return nil
}

// claim looks at the rows that are there, which locks them, and then writes
// those that are free. Where a row comes in between, it begins again.
func (m *mysql) claim(ctx context.Context, b batch) error {
	for {
		err := m.db.InTx(ctx, func(tx *sql.Tx) error { return m.claimIn(ctx, tx, b) })
		if !sqldb.Duplicate(err) {
			return err
		}
	}
}

func (m *mysql) claimIn(ctx context.Context, tx *sql.Tx, b batch) error {
	where, args := b.where("")
	now := sqldb.MySQL.Now()
	var inserted, taken []*item
	tokens := map[*item]int64{}
	err := m.each(ctx, tx, `SELECT scope, "key", token, done, body, until - `+now+`, owner FROM leat_dedup FORCE INDEX (PRIMARY) WHERE `+where+` FOR UPDATE`, args, func(r *sql.Rows) error {
		var scope, key, owner string
		var done bool
		var body []byte
		var token, left int64
		err := r.Scan(&scope, &key, &token, &done, &body, &left, &owner)
		it := b.find(scope, key)
		if err != nil || it == nil {
			return err
		}
		it.found(done, body, left)
		tokens[it] = token
		if left <= 0 || !done && m.ownBefore(owner) {
			taken = append(taken, it)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, it := range b {
		if _, there := tokens[it]; !there {
			inserted = append(inserted, it)
		}
	}
	if len(inserted)+len(taken) == 0 {
		return nil
	}
	var clock int64
	if err := m.db.QueryRow(ctx, tx, "SELECT "+now, nil, &clock); err != nil {
		return err
	}
	for _, it := range slices.Concat(inserted, taken) {
		it.state = middleware.DedupState{Status: middleware.DedupFresh, Token: max(tokens[it]+1, clock)}
	}
	if err := m.write(ctx, tx, clock, inserted, ""); err != nil {
		return err
	}
	return m.write(ctx, tx, clock, taken, ` ON DUPLICATE KEY UPDATE token = VALUES(token), done = 0, body = VALUES(body), until = VALUES(until), owner = VALUES(owner)`)
}

// ownBefore tells whether an earlier process of our name had a claim.
func (m *mysql) ownBefore(owner string) bool {
	return m.instance != "" && owner != m.owner && len(owner) > ownerPrefix && owner[ownerPrefix:] == m.instance
}

// write makes claims of items.
func (m *mysql) write(ctx context.Context, tx *sql.Tx, clock int64, items batch, duplicates string) error {
	if len(items) == 0 {
		return nil
	}
	args := make([]any, 0, 6*len(items))
	for _, it := range items {
		args = append(args, it.claim.Scope, it.claim.Key, it.state.Token, it.body(), clock+it.span.Microseconds(), m.owner)
	}
	const row = "(?, ?, ?, 0, ?, ?, ?)"
	_, err := tx.ExecContext(ctx, m.db.Table(`INSERT INTO leat_dedup (scope, "key", token, done, body, until, owner) VALUES `)+
		strings.Repeat(row+", ", len(items)-1)+row+duplicates, args...)
	return err
}

// update changes the rows whose token is still the claim's, with one statement
// for each span.
func (m *mysql) update(ctx context.Context, b batch, set, which string) error {
	bySpan := map[time.Duration]batch{}
	for _, it := range b {
		bySpan[it.span] = append(bySpan[it.span], it)
	}
	for span, same := range bySpan {
		where, args := same.where("token")
		query := m.db.Table("UPDATE leat_dedup FORCE INDEX (PRIMARY) SET " + set + " WHERE (" + where + ")" + which)
		err := m.db.Retry(ctx, func() error {
			r, err := m.db.Writer.ExecContext(ctx, query, append([]any{span.Microseconds()}, args...)...)
			if err != nil {
				return err
			}
			n, err := r.RowsAffected()
			if err != nil || same[0].kind != opDone || n == int64(len(same)) {
				return err
			}
			return m.lost(ctx, same, where, args)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lost marks what is not done with our token.
func (m *mysql) lost(ctx context.Context, b batch, where string, args []any) error {
	for _, it := range b {
		it.lost = true
	}
	return m.each(ctx, nil, `SELECT scope, "key" FROM leat_dedup WHERE done = 1 AND (`+where+`)`, args, func(r *sql.Rows) error {
		var scope, key string
		err := r.Scan(&scope, &key)
		if it := b.find(scope, key); it != nil {
			it.lost = false
		}
		return err
	})
}

// where picks the rows of a batch, by their keys and one more column, if any.
func (b batch) where(column string) (string, []any) {
	one := `(scope = ? AND "key" = ?)`
	if column != "" {
		one = `(scope = ? AND "key" = ? AND ` + column + ` = ?)`
	}
	args := make([]any, 0, 3*len(b))
	for _, it := range b {
		args = append(args, it.claim.Scope, it.claim.Key)
		if column != "" {
			args = append(args, it.claim.Token)
		}
	}
	return strings.Repeat(one+" OR ", len(b)-1) + one, args
}

// sweep finds rows by their time without a lock, and deletes them by their keys:
// to lock them by their time would be another order than everybody else's.
func (m *mysql) sweep(ctx context.Context, limit int) (int64, error) {
	now := sqldb.MySQL.Now()
	var old batch
	err := m.each(ctx, nil, `SELECT scope, "key" FROM leat_dedup WHERE until <= `+now+` - 1000000 ORDER BY until LIMIT ?`, []any{limit}, func(r *sql.Rows) error {
		it := &item{claim: &middleware.DedupClaim{}}
		old = append(old, it)
		return r.Scan(&it.claim.Scope, &it.claim.Key)
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	where, args := old.where("")
	// The sum keeps the index of until from being used.
	r, err := m.db.Writer.ExecContext(ctx, m.db.Table("DELETE FROM leat_dedup WHERE until + 0 <= "+now+" - 1000000 AND ("+where+")"), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}
