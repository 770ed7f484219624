package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mysqlConfig is that of every connection.
func (s *Server) mysqlConfig(u *url.URL) (*mysql.Config, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName = u.User.Username(), s.Database
	cfg.Passwd, _ = u.User.Password()
	if s.Username != "" {
		cfg.User = s.Username
	}
	if s.Password != "" {
		cfg.Passwd = s.Password
	}
	cfg.Net, cfg.Addr = "tcp", withPort(u.Host, "3306")
	t := s.TLS
	for name, values := range u.Query() {
		switch {
		case name == "tls" && values[0] == "true" && t == nil:
			t = &TLS{}
		case name == "tls" && (values[0] == "true" || values[0] == "false"):
		default:
			return nil, fmt.Errorf("the URL takes no such %s: say tls=true, the rest goes into keys of their own", name)
		}
	}
	if t != nil {
		var err error
		if cfg.TLS, err = t.config(u.Hostname()); err != nil {
			return nil, err
		}
	}
	cfg.Timeout = s.ConnectTimeout
	cfg.ReadTimeout, cfg.WriteTimeout = s.StatementTimeout+silence, s.StatementTimeout+silence
	cfg.InterpolateParams = true // one round trip, and nothing prepared
	cfg.MultiStatements = true   // in one round trip too; values are escaped, whatever they hold
	cfg.ClientFoundRows = true   // as others count: an update that changes nothing has met its row
	cfg.MaxAllowedPacket = 0     // the server's
	cfg.Logger = &mysql.NopLogger{}
	if err := cfg.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	return cfg, nil
}

// lockWait is how long a statement waits for another transaction's lock.
const lockWait = 5 * time.Second

// mysqlSetup is what each connection is told. What only one of MariaDB and
// MySQL knows is in a comment that only it reads.
func mysqlSetup(limits string) []string {
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'" + limits,
	}
}

func mysqlLimits(statement time.Duration) string {
	return fmt.Sprintf(", innodb_lock_wait_timeout = %d /*M!100303 , max_statement_time = %.3f, idle_transaction_timeout = %d */ /*!80000 , max_execution_time = %d */",
		int(lockWait.Seconds()), statement.Seconds(), int(idleInTransaction.Seconds()), statement.Milliseconds())
}

func (s *shared) connectMySQL(cfg *mysql.Config, o Server) error {
	limited, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	patient := cfg.Clone()
	patient.ReadTimeout, patient.WriteTimeout = 0, 0
	unlimited, err := mysql.NewConnector(patient)
	if err != nil {
		return err
	}
	s.writer = sql.OpenDB(&mysqlConnector{limited, o.ConnectTimeout, mysqlSetup(mysqlLimits(o.StatementTimeout))})
	s.writer.SetMaxOpenConns(o.PoolSize)
	s.writer.SetMaxIdleConns(o.PoolSize)
	s.writer.SetConnMaxLifetime(time.Hour)
	s.reader = s.writer
	s.migrator = func() *sql.DB {
		db := sql.OpenDB(&mysqlConnector{unlimited, o.ConnectTimeout, mysqlSetup("")})
		db.SetMaxOpenConns(2) // one has the lock
		return db
	}
	return nil
}

// mysqlConnector tells each connection its settings. The driver's own timeout
// ends with the dialling, before a server has said anything.
type mysqlConnector struct {
	driver.Connector

	timeout time.Duration
	setup   []string
}

func (c *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	waiting := ctx
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, mysqlStranger(err, ctx.Err() != nil && waiting.Err() == nil)
	}
	for _, statement := range c.setup {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("connection's settings: %w", err), conn.Close())
		}
	}
	return conn, nil
}

// InScripts runs a transaction that its functions begin and end by themselves,
// in scripts: several statements in one round trip to MySQL, of which none after
// one that fails is run. begin comes with START TRANSACTION, and rest ends with
// COMMIT. If one of them fails, or panics, the transaction is rolled back; after
// a conflict both run again, as in [DB.InTx]. An error may mean that the answer
// was lost, as there: a server goes on with a script whose client has gone.
func (d *DB) InScripts(ctx context.Context, begin, rest func(*sql.Conn) error) error {
	return d.Retry(ctx, func() error {
		conn, err := connection(ctx, d.Writer, undone(ctx, begin))
		if err != nil {
			return err
		}
		defer conn.Close()
		return undone(ctx, rest)(conn)
	})
}

// undone rolls back what fails. A connection on which that cannot be done is
// closed, so that none comes back to the pool with a transaction open.
func undone(ctx context.Context, fn func(*sql.Conn) error) func(*sql.Conn) error {
	return func(conn *sql.Conn) (err error) {
		clean := false
		defer func() {
			if !clean {
				_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			}
		}()
		if err = fn(conn); err != nil {
			_, rolling := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			clean = rolling == nil
			return err
		}
		clean = true
		return nil
	}
}

// Uncommitted gives fn a connection to MySQL on which one statement, the next,
// also sees what others have written and not committed. fn must run one, or
// fail.
func (d *DB) Uncommitted(ctx context.Context, fn func(*sql.Conn) error) error {
	conn, err := connection(ctx, d.Reader, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = fn(conn); err != nil { // and maybe before that statement
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}
