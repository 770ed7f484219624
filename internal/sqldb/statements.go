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

// Read gives a prepared statement of d.Reader.
func (d *DB) Read(ctx context.Context, query string) (*sql.Stmt, error) {
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

// Write gives a prepared statement within a transaction of [DB.InTx].
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
