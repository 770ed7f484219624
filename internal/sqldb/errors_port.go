package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// strangerError is of a connection on which nothing was said that a server of
// the kind would say.
type strangerError struct {
	silent bool // not in all the time that connecting may take
	err    error
}

func (e *strangerError) Error() string { return e.err.Error() }
func (e *strangerError) Unwrap() error { return e.err }

// otherServer asks whether it is another service that listens, where what it
// did while connecting looks like that.
func (s *shared) otherServer(err error) string {
	name := "PostgreSQL"
	if s.target.dialect == MySQL {
		name = "MariaDB or MySQL"
	}
	stranger, ok := errors.AsType[*strangerError](err)
	if s.target.dialect == Postgres {
		stranger, ok = postgresStranger(err)
	}
	switch {
	case !ok:
		return ""
	case stranger.silent:
		return fmt.Sprintf("takes the connection, and no word of a %[1]s comes within connect_timeout: is that the port of a %[1]s?", name)
	default:
		return fmt.Sprintf("does not answer as a %[1]s does: is that the port of a %[1]s?", name)
	}
}

// postgresStranger goes by what pgx says, which has a type for some of it alone.
func postgresStranger(err error) (*strangerError, bool) {
	if _, connecting := errors.AsType[*pgconn.ConnectError](err); !connecting || dialing(err) {
		return nil, false
	}
	_, long := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err)
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	silent := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	other := long || closed || strings.Contains(err.Error(), "unknown message type")
	return &strangerError{silent: silent, err: err}, silent || other
}

// mysqlStranger marks an error of connecting by which a server has not shown
// itself as one. late: it had the time that connecting may take.
func mysqlStranger(err error, late bool) error {
	if dialing(err) || mysqlNumber(err) != 0 {
		return err
	}
	strange := []error{mysql.ErrMalformPkt, mysql.ErrPktSync, mysql.ErrPktSyncMul, mysql.ErrOldProtocol, mysql.ErrInvalidConn, driver.ErrBadConn}
	if late || slices.ContainsFunc(strange, func(known error) bool { return errors.Is(err, known) }) {
		return &strangerError{late, err}
	}
	return err
}

// dialing tells whether there was no connection yet.
func dialing(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	return dns || ok && op.Op == "dial"
}
