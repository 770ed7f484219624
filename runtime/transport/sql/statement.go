package sql

import (
	"context"
	stdsql "database/sql"

	"github.com/leat-io/leat/internal/sqldb"
)

// exec runs a prepared statement of a transaction.
func exec(ctx context.Context, db *sqldb.DB, tx *stdsql.Tx, query string, args ...any) (stdsql.Result, error) {
	st, err := db.Write(ctx, tx, query) //nolint:sqlclosecheck // it outlives the transaction
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// each gives the rows of a prepared statement to fn, within a transaction.
func each(ctx context.Context, db *sqldb.DB, tx *stdsql.Tx, query string, args []any, fn func(*stdsql.Rows) error) error {
	st, err := db.Write(ctx, tx, query) //nolint:sqlclosecheck // it outlives the transaction
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, args...)
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

// first scans the one row of a prepared statement, within a transaction.
func first(ctx context.Context, db *sqldb.DB, tx *stdsql.Tx, query string, args []any, dest ...any) error {
	return each(ctx, db, tx, query, args, func(r *stdsql.Rows) error { return r.Scan(dest...) })
}

// look gives the rows of a prepared statement to fn until it says false,
// outside of any transaction. Such a statement is short, and watching ctx
// would cost a goroutine each.
func look(ctx context.Context, db *sqldb.DB, query string, args []any, fn func(*stdsql.Rows) (bool, error)) error {
	st, err := db.Read(ctx, query) //nolint:sqlclosecheck // kept for as long as the database is open
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(context.WithoutCancel(ctx), args...)
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
