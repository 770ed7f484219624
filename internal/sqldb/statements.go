package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// statements keeps prepared statements for as long as the database is open.
// They are for texts of which there are few; nobody closes them.
type statements struct {
	mu     sync.Mutex
	reads  map[string]*sql.Stmt
	writes map[string]*sql.Stmt // nil: wanted, but not prepared yet
	spare  []*sql.Stmt
}

func newStatements() *statements {
	return &statements{reads: map[string]*sql.Stmt{}, writes: map[string]*sql.Stmt{}}
}

// Exec runs a statement in a transaction of [DB.InTx].
func (d *DB) Exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (sql.Result, error) {
	if d.Dialect != SQLite {
		return tx.ExecContext(ctx, d.SQL(query), args...)
	}
	st, err := d.Write(ctx, tx, query) //nolint:sqlclosecheck // it outlives the transaction
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

// Query reads in a transaction of [DB.InTx], or outside of any where tx is nil.
func (d *DB) Query(ctx context.Context, tx *sql.Tx, query string, args ...any) (*sql.Rows, error) {
	switch {
	case d.Dialect == SQLite:
		st, err := d.reading(ctx, tx, query) //nolint:sqlclosecheck // it outlives the transaction
		if err != nil {
			return nil, err
		}
		return st.QueryContext(ctx, args...)
	case tx == nil:
		return d.Reader.QueryContext(ctx, d.SQL(query), args...)
	default:
		return tx.QueryContext(ctx, d.SQL(query), args...)
	}
}

// QueryRow is [DB.Query] for one row: [sql.ErrNoRows] where there is none.
func (d *DB) QueryRow(ctx context.Context, tx *sql.Tx, query string, args []any, dest ...any) error {
	rows, err := d.Query(ctx, tx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

// reading gives a prepared statement of SQLite.
func (d *DB) reading(ctx context.Context, tx *sql.Tx, query string) (*sql.Stmt, error) {
	if tx == nil {
		return d.read(ctx, query)
	}
	return d.Write(ctx, tx, query)
}

// read gives a prepared statement of d.Reader, of SQLite.
func (d *DB) read(ctx context.Context, query string) (*sql.Stmt, error) {
	s := d.statements
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.reads[query]; st != nil {
		return st, nil
	}
	st, err := d.Reader.PrepareContext(context.WithoutCancel(ctx), query) //nolint:sqlclosecheck // by close
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	s.reads[query] = st
	return st, nil
}

// Write gives a prepared statement within a transaction of [DB.InTx], of SQLite.
func (d *DB) Write(ctx context.Context, tx *sql.Tx, query string) (*sql.Stmt, error) {
	s := d.statements
	s.mu.Lock()
	st := s.writes[query]
	if st == nil {
		s.writes[query] = nil
	}
	s.mu.Unlock()
	if st != nil {
		return tx.StmtContext(ctx, st), nil
	}
	// The transaction has the only connection: what is to last is prepared after it.
	return tx.PrepareContext(ctx, query)
}

// prepareWrites prepares what the last transaction wanted. What fails is
// wanted again.
func (d *DB) prepareWrites(ctx context.Context) {
	s := d.statements
	s.mu.Lock()
	var wanted []string
	for query, st := range s.writes {
		if st == nil {
			wanted = append(wanted, query)
		}
	}
	s.mu.Unlock()
	for _, query := range wanted {
		st, err := d.Writer.PrepareContext(ctx, query) //nolint:sqlclosecheck // by close
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.writes[query] != nil {
			s.spare = append(s.spare, st) // somebody else was faster
		} else {
			s.writes[query] = st
		}
		s.mu.Unlock()
	}
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.spare {
		errs = append(errs, st.Close())
	}
	for _, kept := range []map[string]*sql.Stmt{s.reads, s.writes} {
		for _, st := range kept {
			if st != nil {
				errs = append(errs, st.Close())
			}
		}
		clear(kept)
	}
	return errors.Join(errs...)
}
