package sql

import (
	"context"
	stdsql "database/sql"
	"strings"

	"github.com/leat-io/leat/internal/sqldb"
)

// database is an open one, and how it is spoken to.
type database struct {
	*sqldb.DB

	d dialect
}

// literal is an argument that stands in the statement itself, in its
// place: a list of numbers, for databases that have no arrays.
type literal string

const place = "\x00"

// spell makes of a statement what the database takes.
func (db *database) spell(query string, args []any) (string, []any) {
	query = db.SQL(query)
	if !strings.Contains(query, place) {
		return query, args
	}
	rest := make([]any, 0, len(args))
	for _, a := range args {
		if l, ok := a.(literal); ok {
			query = strings.Replace(query, place, string(l), 1)
		} else {
			rest = append(rest, a)
		}
	}
	return query, rest
}

// exec runs a statement of a transaction.
func (db *database) exec(ctx context.Context, tx *stdsql.Tx, query string, args ...any) (stdsql.Result, error) {
	if !db.Dialect.Server() {
		return db.Exec(ctx, tx, query, args...)
	}
	query, args = db.spell(query, args)
	return tx.ExecContext(ctx, query, args...)
}

// changed runs a statement of a transaction, and counts the rows it has met.
func (db *database) changed(ctx context.Context, tx *stdsql.Tx, query string, args ...any) (int64, error) {
	res, err := db.exec(ctx, tx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query reads within a transaction, or outside of any where tx is nil. In a
// file the latter is short, and watching ctx would cost a goroutine each.
func (db *database) query(ctx context.Context, tx *stdsql.Tx, query string, args []any) (*stdsql.Rows, error) {
	if !db.Dialect.Server() {
		return db.Query(context.WithoutCancel(ctx), tx, query, args...)
	}
	query, args = db.spell(query, args)
	if tx == nil {
		return db.Reader.QueryContext(ctx, query, args...)
	}
	return tx.QueryContext(ctx, query, args...)
}

// each gives the rows of a statement to fn, within a transaction.
func (db *database) each(ctx context.Context, tx *stdsql.Tx, query string, args []any, fn func(*stdsql.Rows) error) error {
	return db.until(ctx, tx, query, args, func(r *stdsql.Rows) (bool, error) { return true, fn(r) })
}

// look gives the rows of a statement to fn until it says false, outside of any
// transaction.
func (db *database) look(ctx context.Context, query string, args []any, fn func(*stdsql.Rows) (bool, error)) error {
	return db.until(ctx, nil, query, args, fn)
}

func (db *database) until(ctx context.Context, tx *stdsql.Tx, query string, args []any, fn func(*stdsql.Rows) (bool, error)) error {
	rows, err := db.query(ctx, tx, query, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more && rows.Next(); {
		if more, err = fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// first scans the one row of a statement, or none: within a transaction, or
// outside of any where tx is nil.
func (db *database) first(ctx context.Context, tx *stdsql.Tx, query string, args []any, dest ...any) error {
	return db.each(ctx, tx, query, args, func(r *stdsql.Rows) error { return r.Scan(dest...) })
}
