package dedupsql

import (
	"context"
	"database/sql"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
)

// postgres runs each batch as one statement, which is its own transaction.
type postgres struct{ *Store }

// postgresSQL are its statements. Where they take a batch, its columns are
// arrays: scopes, keys, and what the operation needs.
type postgresSQL struct{ claim, look, renew, done, release, sweep string }

func postgresQueries() postgresSQL {
	now := sqldb.Postgres.Now()
	// update locks the rows in their order before it changes them.
	update := func(set, which string) string {
		return `WITH l AS MATERIALIZED (
 SELECT d.scope, d.key, c.span FROM leat_dedup d
 JOIN unnest(?1::text[], ?2::text[], ?3::bigint[], ?4::bigint[]) AS c(scope, key, token, span)
 ON d.scope = c.scope AND d.key = c.key AND d.token = c.token` + which + `
 ORDER BY d.scope, d.key FOR UPDATE OF d)
UPDATE leat_dedup d SET ` + set + ` FROM l WHERE d.scope = l.scope AND d.key = l.key RETURNING d.scope, d.key`
	}
	return postgresSQL{
		claim: `INSERT INTO leat_dedup AS d (scope, key, token, done, body, until, owner)
SELECT c.scope, c.key, t.now, 0, c.body, t.now + c.lease, ?5
FROM unnest(?1::text[], ?2::text[], ?3::bytea[], ?4::bigint[]) AS c(scope, key, body, lease), (SELECT ` + now + ` AS now) t
ORDER BY c.scope COLLATE "C", c.key COLLATE "C"
ON CONFLICT (scope, key) DO UPDATE
SET token = greatest(d.token + 1, excluded.token), done = 0, body = excluded.body, until = excluded.until, owner = excluded.owner
WHERE d.until <= ` + now + ` OR (d.done = 0 AND ?6 <> '' AND d.owner <> ?5 AND substr(d.owner, 17) = ?6)
RETURNING scope, key, token`,
		look: `SELECT d.scope, d.key, d.done, d.body, d.until - ` + now + `
FROM leat_dedup d JOIN unnest(?1::text[], ?2::text[]) AS c(scope, key) ON d.scope = c.scope AND d.key = c.key`,
		renew:   update("until = "+now+" + l.span", " AND d.done = 0"),
		done:    update("done = 1, until = "+now+" + l.span", ""),
		release: update("token = d.token + 1, until = "+now, " AND d.done = 0"),
		// Rows that are locked stay where they are; by their place they are found
		// at once, whatever the planner thinks of the table.
		sweep: `DELETE FROM leat_dedup WHERE ctid = ANY (ARRAY(
 SELECT ctid FROM leat_dedup WHERE until <= ` + now + ` - 1000000 ORDER BY until LIMIT ? FOR UPDATE SKIP LOCKED))`,
	}
}

func (p *postgres) run(ctx context.Context, ops []*op) error {
	q := postgresQueries()
	inBatches(ops, func(kind opKind, b batch) error {
		return p.db.Retry(ctx, func() error {
			switch kind {
			case opClaim:
				return p.claim(ctx, q, b)
			case opRenew:
				return p.update(ctx, q.renew, b)
			case opDone:
				return p.update(ctx, q.done, b)
			case opRelease:
				return p.update(ctx, q.release, b)
			}
			return nil
		})
	})
	return nil
}

func (p *postgres) claim(ctx context.Context, q postgresSQL, b batch) error {
	scopes, keys := b.keys()
	bodies, leases := make([][]byte, len(b)), make([]int64, len(b))
	for i, it := range b {
		bodies[i], leases[i] = it.body(), it.span.Microseconds()
		it.state = middleware.DedupState{}
	}
	fresh := 0
	err := p.each(ctx, nil, q.claim, []any{scopes, keys, bodies, leases, p.owner, p.instance}, func(r *sql.Rows) error {
		var scope, key string
		var token int64
		err := r.Scan(&scope, &key, &token)
		if it := b.find(scope, key); it != nil {
			it.state = middleware.DedupState{Status: middleware.DedupFresh, Token: token}
			fresh++
		}
		return err
	})
	if err != nil || fresh == len(b) {
		return err
	}
	for _, it := range b {
		if it.state.Status == 0 { // until we know more: it may be gone by now
			it.state.Status = middleware.DedupHeld
		}
	}
	return p.each(ctx, nil, q.look, []any{scopes, keys}, func(r *sql.Rows) error {
		var scope, key string
		var done bool
		var body []byte
		var left int64
		err := r.Scan(&scope, &key, &done, &body, &left)
		if it := b.find(scope, key); it != nil && it.state.Status == middleware.DedupHeld {
			it.found(done, body, left)
		}
		return err
	})
}

// update runs a statement that returns the keys it has met.
func (p *postgres) update(ctx context.Context, query string, b batch) error {
	scopes, keys := b.keys()
	tokens, spans := make([]int64, len(b)), make([]int64, len(b))
	for i, it := range b {
		tokens[i], spans[i], it.lost = it.claim.Token, it.span.Microseconds(), it.kind == opDone
	}
	return p.each(ctx, nil, query, []any{scopes, keys, tokens, spans}, func(r *sql.Rows) error {
		var scope, key string
		err := r.Scan(&scope, &key)
		if it := b.find(scope, key); it != nil {
			it.lost = false
		}
		return err
	})
}

func (p *postgres) sweep(ctx context.Context, limit int) (int64, error) {
	r, err := p.db.Writer.ExecContext(ctx, p.db.SQL(postgresQueries().sweep), limit)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}
