package sqldb

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// UnusableError is a database that waiting will not mend: it is a directory,
// corrupt, read-only, or of a schema this program does not know. Any other
// error of this package is an outage.
type UnusableError struct {
	Path    string
	Problem string // what is wrong and how to mend it
	Err     error  // the driver's word, nil where there is none
}

func (e *UnusableError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("database %s: %s", e.Path, e.Problem)
	}
	return fmt.Sprintf("database %s: %s: %v", e.Path, e.Problem, e.Err)
}

// Unwrap gives the driver's error.
func (e *UnusableError) Unwrap() error { return e.Err }

// Unusable tells whether an error is, or wraps, an [UnusableError].
func Unusable(err error) bool {
	_, ok := errors.AsType[*UnusableError](err)
	return ok
}

// Busy tells whether somebody else holds the lock that was asked for.
func Busy(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return true
	default:
		return false
	}
}

// code is the primary result code of SQLite in err, 0 if there is none.
func code(err error) int {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0
	}
	return e.Code() & 0xff
}

// Explain names the database in an error of the driver, and marks it as
// unusable where it is. Errors that did not come from the driver pass as they are.
func (d *DB) Explain(err error) error { return explain(d.Path, err) }

func explain(path string, err error) error {
	if err == nil || Unusable(err) {
		return err
	}
	unusable := func(problem string) error { return &UnusableError{Path: path, Problem: problem, Err: err} }
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
