package sqldb

// Dialect is a family of databases.
type Dialect string

// Values of Dialect. The empty one is SQLite.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // MariaDB is one of it
)

// Now is an expression for the database's clock as whole microseconds since
// 1970, at the statement's begin: it is the same throughout a statement, and so
// an index can be searched with it. It depends on no setting of the connection.
func (d Dialect) Now() string {
	switch d {
	case Postgres:
		return "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
	case MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	case SQLite, "":
	}
	return Now
}

// Server tells whether the database is reached over a network, by a user with rights.
func (d Dialect) Server() bool { return d == Postgres || d == MySQL }

// file is the folder of the dialect's migrations.
func (d Dialect) folder() string { return "migrations/" + string(d) }
