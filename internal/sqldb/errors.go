package sqldb

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// UnusableError is a database that waiting will not mend: it is missing,
// damaged, of a schema this program does not know, or does not let this user
// in. Any other error of this package is an outage, or the fault of a value.
type UnusableError struct {
	Database string // its name
	Problem  string // what is wrong and how to mend it
	Err      error  // the driver's word, nil where there is none
}

func (e *UnusableError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("database %s: %s", e.Database, e.Problem)
	}
	return fmt.Sprintf("database %s: %s: %v", e.Database, e.Problem, e.Err)
}

// Unwrap gives the driver's error.
func (e *UnusableError) Unwrap() error { return e.Err }

// Unusable tells whether an error is, or wraps, an [UnusableError].
func Unusable(err error) bool {
	_, ok := errors.AsType[*UnusableError](err)
	return ok
}

// RejectedError is a value that the database will never take, whoever waits: it
// is too long, or not text. What else its transaction wrote may be written
// without it.
type RejectedError struct {
	Database string
	Problem  string // what is wrong and how to mend it; nothing of the value
	Err      error  // the driver's, which is not printed: it may show the value
}

func (e *RejectedError) Error() string { return "database " + e.Database + ": " + e.Problem }

// Unwrap gives the driver's error.
func (e *RejectedError) Unwrap() error { return e.Err }

// Rejected tells whether an error of [DB.Explain] is, or wraps, a [RejectedError].
func Rejected(err error) bool {
	_, ok := errors.AsType[*RejectedError](err)
	return ok
}

// Busy tells whether somebody else holds the lock on an SQLite file that was asked for.
func Busy(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return true
	default:
		return false
	}
}

// Conflict tells whether a server has ended a transaction because of another
// one, by a deadlock or after waiting for a lock: the same again may succeed.
func Conflict(err error) bool { return postgresConflict(err) || mysqlConflict(err) }

// Duplicate tells whether a server has refused a row since its key is there.
func Duplicate(err error) bool { return postgresCode(err) == "23505" || mysqlNumber(err) == 1062 }

// code is the primary result code of SQLite in err, 0 if there is none.
func code(err error) int {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0
	}
	return e.Code() & 0xff
}

// Explain names the database in an error of the driver, says how to mend it,
// and marks it as [UnusableError] or [RejectedError] where it is one. Errors
// that did not come from the driver pass as they are.
func (d *DB) Explain(err error) error { return d.explain(err) }

func (s *shared) explain(err error) error {
	switch {
	case err == nil || Unusable(err) || Rejected(err):
		return err
	case s.target.dialect == SQLite:
		return explain(s.target.path, err)
	}
	finding := s.mysqlFinding
	if s.target.dialect == Postgres {
		finding = s.postgresFinding
	}
	f, known := finding(err)
	switch {
	case !known:
		return s.plain(err)
	case f.kind == unusable:
		return &UnusableError{Database: s.target.name, Problem: f.problem, Err: err}
	case f.kind == rejected:
		return &RejectedError{Database: s.target.name, Problem: f.problem, Err: err}
	case f.problem == "":
		return fmt.Errorf("database %s: %w", s.target.name, err)
	default:
		return fmt.Errorf("database %s: %s: %w", s.target.name, f.problem, err)
	}
}

// plain is an error that no server has sent.
func (s *shared) plain(err error) error {
	if certificate(err) {
		return &UnusableError{Database: s.target.name, Problem: "shows a certificate that is not trusted: name its authority by tls.ca and, where it is for another host, tls.server_name", Err: err}
	}
	if ask := s.otherServer(err); ask != "" {
		return fmt.Errorf("database %s: %s: %w", s.target.name, ask, err)
	}
	if noTLS(err) {
		return &UnusableError{Database: s.target.name, Problem: "has no TLS: set it up on the server, or ask for none", Err: err}
	}
	if !network(err) {
		return err
	}
	if full := s.full(); full != "" && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("database %s: %s: %w", s.target.name, full, err)
	}
	return fmt.Errorf("database %s: %w", s.target.name, err)
}

// full says that all connections are in use, where they are.
func (s *shared) full() string {
	n, limit := s.writer.Stats().InUse, s.target.server.PoolSize
	if s.pool != nil {
		n = int(s.pool.Stat().AcquiredConns())
	}
	if n < limit {
		return ""
	}
	return fmt.Sprintf("no connection was free: all %d are in use, so raise pool_size", limit)
}

// finding is what is known about an error of a server.
type finding struct {
	kind    kind
	problem string // and how to mend it
}

type kind int

const (
	outage   kind = iota // waiting may mend it
	unusable             // waiting will not
	rejected             // the value is wrong, the database is not
)

func (s *shared) unusable(problem string) error {
	return &UnusableError{Database: s.target.name, Problem: problem}
}

func explain(path string, err error) error {
	if err == nil || Unusable(err) {
		return err
	}
	unusable := func(problem string) error { return &UnusableError{Database: path, Problem: problem, Err: err} }
	switch code(err) {
	case 0:
		return err
	case sqlite3.SQLITE_READONLY:
		return unusable("cannot be written: give this user the right to write the file and its folder")
	case sqlite3.SQLITE_CORRUPT:
		return unusable("is damaged: restore it from a copy, or recover what is there with sqlite3's .recover")
	case sqlite3.SQLITE_NOTADB:
		return unusable("is not an SQLite database: name another file")
	default:
		return fmt.Errorf("database %s: %w", path, err)
	}
}
