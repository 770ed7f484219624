package main

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"

	"github.com/leat-io/leat/benchmarks/harness"
)

// inDatabase runs fn with the URL of a database of its own.
func inDatabase(b broker, fn func(url string) error) error {
	u, err := url.Parse(b.url())
	if err != nil {
		return err
	}
	server, err := openDatabase(u)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // all is done by then
	name := unique()
	if _, err := server.ExecContext(background(), "CREATE DATABASE "+name); err != nil {
		return err
	}
	drop := []string{"DROP DATABASE", name}
	if b == postgresBroker {
		drop = append(drop, "WITH (FORCE)")
	}
	u.Path = "/" + name
	err = fn(u.String())
	_, dropping := server.ExecContext(background(), strings.Join(drop, " "))
	return errors.Join(err, dropping)
}

// openDatabase opens by the URL that a worker would get.
func openDatabase(u *url.URL) (*stdsql.DB, error) {
	if u.Scheme != "mysql" {
		return stdsql.Open("pgx", u.String())
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, u.Path[1:]
	c.Passwd, _ = u.User.Password()
	c.InterpolateParams = true // one round trip for each statement
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return stdsql.OpenDB(readCommitted{connector}), nil
}

// readCommitted has each connection lock no gaps.
type readCommitted struct{ driver.Connector }

func (c readCommitted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err == nil {
		_, err = conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", nil)
	}
	return conn, err
}

// openLeat makes the transport of a database.
func openLeat(rawURL string) (transport.Transport, error) {
	o := sql.ServerOptions{Server: sql.Server{URL: rawURL}}
	if strings.HasPrefix(rawURL, "mysql:") {
		return sql.OpenMySQL(o)
	}
	return sql.OpenPostgres(o)
}

// leatDatabase measures a worker on n messages in the middle of times·n.
func leatDatabase(b broker, times int, l load) func(*harness.Meter, int) error {
	return inLeat(b, times, func(m *harness.Meter, t transport.Transport, n int) error { return l.drain(m, t, topic, n, times) })
}

func leatDatabasePublish(b broker, goroutines, batch int) func(*harness.Meter, int) error {
	return inLeat(b, 0, func(m *harness.Meter, t transport.Transport, n int) error {
		return publish(m, t, topic, n, goroutines, batch)
	})
}

// inLeat runs fn with a database of its own that has times·n messages.
func inLeat(b broker, times int, fn func(*harness.Meter, transport.Transport, int) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inDatabase(b, func(url string) error {
			t, err := openLeat(url)
			if err != nil {
				return err
			}
			err = fillTopic(background(), t, times*n)
			if err == nil && b == postgresBroker {
				err = vacuum(background(), url)
			}
			if err != nil {
				return errors.Join(err, t.Close(background()))
			}
			return fn(m, t, n)
		})
	}
}

// vacuum has PostgreSQL do what a table that was just filled leaves to do.
func vacuum(ctx context.Context, url string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, "VACUUM ANALYZE")
	if err == nil {
		_, err = db.Exec(ctx, "CHECKPOINT")
	}
	return errors.Join(err, db.Close(ctx))
}
