package sqldb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What several databases say in words of their own.
const (
	adviceTable    = "is damaged, or not migrated: restore it from a copy, or run `worker migrate`"
	adviceSetting  = "refuses a setting: take it out of the URL, or into a key of its own"
	advicePooler   = "is behind a pooler that refuses settings of connections: say pooler: transaction"
	adviceTimeout  = "did not finish a statement in time: raise statement_timeout, or look for what holds it up"
	adviceFull     = "has no connection left: lower pool_size, or raise the server's limit"
	adviceReadOnly = "takes no writes: it is a replica, or set to read-only; name the primary"
	adviceDisk     = "has no room left: make some"
	adviceText     = "takes no such text: it is not UTF-8, or has a NUL in it"
	adviceTooLong  = "takes no value that long"
	advicePacket   = "takes no packet that large: raise max_allowed_packet on the server, or send less"
	adviceKilled   = "has ended the connection"
	adviceHost     = "does not let this host in"
)

func (s *shared) adviceLogin() string {
	return fmt.Sprintf("does not let user %s in: check username and password", s.target.user)
}

func (s *shared) adviceRight() string {
	return fmt.Sprintf("user %s lacks a right: grant it", s.target.user)
}

func (s *shared) adviceMissing() string {
	return fmt.Sprintf("database %s does not exist on the server: create it", s.target.server.Database)
}

func (s *shared) postgresFinding(err error) (finding, bool) {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return finding{}, false
	}
	switch e.Code {
	case "28P01", "28000":
		return finding{unusable, s.adviceLogin()}, true
	case "3D000":
		return finding{unusable, s.adviceMissing()}, true
	case "3F000":
		return finding{unusable, fmt.Sprintf("schema %s does not exist: create it, or use topology: declare", s.target.server.Schema)}, true
	case "42501":
		return finding{unusable, s.adviceRight()}, true
	case "42704", "22023": // while connecting: what the URL asks for
		return finding{unusable, adviceSetting}, true
	case "08P01": // while connecting: PgBouncer
		return finding{unusable, advicePooler}, true
	case "42P01", "42703", "42804", "XX001", "XX002": // table, column, its type; damaged pages
		return finding{unusable, adviceTable}, true
	case "22021", "22P05": // not of the encoding
		return finding{rejected, adviceText}, true
	case "22001", "54000": // too long
		return finding{rejected, adviceTooLong}, true
	case "57014":
		return finding{outage, adviceTimeout}, true
	case "53300":
		return finding{outage, adviceFull}, true
	case "53100":
		return finding{outage, adviceDisk}, true
	case "25006":
		return finding{outage, adviceReadOnly}, true
	case "57P01", "57P02", "57P05", "25P03":
		return finding{outage, adviceKilled}, true
	}
	return finding{}, true
}

func (s *shared) mysqlFinding(err error) (finding, bool) {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return finding{rejected, advicePacket}, true
	}
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return finding{}, false
	}
	switch e.Number {
	case 1045, 1251, 1524, 1698, 1820, 1862, 3118, 3159, 4151: // password, its method, its age, locked
		return finding{unusable, s.adviceLogin()}, true
	case 1129, 1130:
		return finding{unusable, adviceHost}, true
	case 1049:
		return finding{unusable, s.adviceMissing()}, true
	case 1044, 1142, 1143, 1227, 1370: // database, table, column, global, routine
		return finding{unusable, s.adviceRight()}, true
	case 1146, 1054, 1932, 126, 127, 145, 1034, 1194, 1195, 1712, 1877: // table, column; damaged
		return finding{unusable, adviceTable}, true
	case 1366, 3988:
		return finding{rejected, adviceText}, true
	case 1406, 1118:
		return finding{rejected, adviceTooLong}, true
	case 1153:
		return finding{rejected, advicePacket}, true
	case 1105: // anything; what a packet has no room for is then sent in pieces, which MariaDB refuses by this
		if strings.Contains(e.Message, "max_allowed_packet") {
			return finding{rejected, advicePacket}, true
		}
	case 1969, 3024:
		return finding{outage, adviceTimeout}, true
	case 1040, 1203, 1226:
		return finding{outage, adviceFull}, true
	case 1021, 1114:
		return finding{outage, adviceDisk}, true
	case 1290, 1792, 1836:
		return finding{outage, adviceReadOnly}, true
	case 1053, 1317, 1927:
		return finding{outage, adviceKilled}, true
	}
	return finding{}, true
}

func postgresCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

func mysqlNumber(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// postgresConflict: a serialization failure, a deadlock, a lock not had in time.
func postgresConflict(err error) bool {
	c := postgresCode(err)
	return c == "40001" || c == "40P01" || c == "55P03"
}

// mysqlConflict: a deadlock, a lock not had in time, a snapshot too old (MariaDB), a
// write set that another node was faster with.
func mysqlConflict(err error) bool {
	n := mysqlNumber(err)
	return n == 1213 || n == 1205 || n == 1020 || n == 1047
}

func missingTable(err error) bool { return postgresCode(err) == "42P01" || mysqlNumber(err) == 1146 }

func missingColumn(err error) bool { return postgresCode(err) == "42703" || mysqlNumber(err) == 1054 }

// deniedRight: to a table or a column of it, or on PostgreSQL to anything.
func deniedRight(err error) bool {
	n := mysqlNumber(err)
	return postgresCode(err) == "42501" || n == 1142 || n == 1143
}

// certificate tells whether the server's certificate was refused.
func certificate(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return is || unknown
}

// noTLS tells whether the server has no TLS, though it was asked for. pgx has
// only words for that.
func noTLS(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return errors.Is(err, mysql.ErrNoTLS) || connecting && strings.Contains(err.Error(), "server refused TLS connection")
}

// ended tells whether a connection has ended, and not by being too slow.
func ended(err error) bool {
	switch postgresCode(err) {
	case "57P01", "57P02", "57P05", "25P03":
		return true
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return false
	}
	return network(err)
}

// network tells whether an error is one of a connection, or of having none.
func network(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, dialing := errors.AsType[net.Error](err)
	if connecting || dialing || pgconn.SafeToRetry(err) { // that last is of a connection that was closed before
		return true
	}
	for _, known := range []error{pgx.ErrTxClosed, driver.ErrBadConn, mysql.ErrInvalidConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
