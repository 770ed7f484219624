package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Sweep is one round of the sweeper.
func Sweep(ctx context.Context, t *Transport) error {
	s := &sweeper{t.db}
	for from := int64(0); ; {
		next, err := s.sweep(ctx, from)
		if err != nil || next == from {
			return err
		}
		from = next
	}
}

// Kill stops a consumer's goroutines and leaves everything else as a killed
// process would.
func Kill(c transport.Consumer) {
	k := c.(*consumer)
	k.stop()
	<-k.kept
	k.watchdog.Stop()
	k.unwake()
}

// Lose has a consumer's Receive fail as if the database were lost.
func Lose(c transport.Consumer) { c.(*consumer).fail(errors.New("the database is lost")) }

// LateCommits has t read as from a database whose rows may become visible late.
func LateCommits(t *Transport) { t.d = lateSQLite{} }

// ShiftClock has t take the time from a table of one number, by which the
// database's clock was set.
func ShiftClock(t *Transport) { t.d = shiftedSQLite{} }

type shiftedSQLite struct{ sqlite }

func (d shiftedSQLite) clock() string {
	return "(SELECT " + d.sqlite.clock() + " + shift FROM test_clock)"
}

type lateSQLite struct{ sqlite }

func (lateSQLite) lateCommits() bool { return true }

// LookBack has everything that was read looked at again.
func LookBack(c transport.Consumer) {
	k := c.(*consumer)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spells {
		s.lookBack(0)
	}
}

// BeginScan begins a scan, and gives what ends it.
func BeginScan(c transport.Consumer) (finish func()) {
	k := c.(*consumer)
	jobs := k.begin()
	return func() { k.finish(jobs, nil) }
}

// Held counts the ids that no scan may hand out.
func Held(c transport.Consumer) int {
	k := c.(*consumer)
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, s := range k.spells {
		n += len(s.held)
	}
	return n
}

// ShiftServerClock has t take the time from a table of one number, by which the
// database's clock was set.
func ShiftServerClock(t *Transport, table string) {
	switch t.d.(type) {
	case postgres:
		t.d = shiftedPostgres{table: table}
	case mysql:
		t.d = shiftedMySQL{table: table}
	}
}

type shiftedPostgres struct {
	postgres

	table string
}

func (d shiftedPostgres) clock() string {
	return "(SELECT " + d.postgres.clock() + " + shift FROM " + d.table + ")"
}

type shiftedMySQL struct {
	mysql

	table string
}

func (d shiftedMySQL) clock() string {
	return "(SELECT " + d.mysql.clock() + " + shift FROM " + d.table + ")"
}

// Retries counts transactions that were run again after a conflict.
func Retries(c transport.Consumer) int64 { return c.(*consumer).db.Retries() }

// CountRows counts the rows of messages that t has the database send, whether
// or not anybody takes them.
func CountRows(t *Transport) *atomic.Int64 {
	n := &atomic.Int64{}
	t.d = counting{t.d, n}
	return n
}

type counting struct {
	dialect

	n *atomic.Int64
}

func (d counting) forward(ctx context.Context, db *database, jobs []*job, fn func(*row) (bool, error)) error {
	return d.dialect.forward(ctx, db, jobs, d.all(fn))
}

func (d counting) byID(ctx context.Context, db *database, ids []int64, fn func(*row) (bool, error)) error {
	return d.dialect.byID(ctx, db, ids, d.all(fn))
}

// all goes on where fn has ended.
func (d counting) all(fn func(*row) (bool, error)) func(*row) (bool, error) {
	more := true
	return func(m *row) (_ bool, err error) {
		d.n.Add(1)
		if more {
			more, err = fn(m)
		}
		return true, err
	}
}

// SetStep has the ids of one INSERT be step apart on all connections of t that
// are there, and no others.
func SetStep(ctx context.Context, t *Transport, step int) error {
	var conns []*stdsql.Conn
	for range t.db.Writer.Stats().OpenConnections {
		conn, err := t.db.Writer.Conn(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION auto_increment_increment = %d", step)); err != nil {
			return err
		}
	}
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Dead tells whether a consumer with a lease takes another for dead that is
// seen as it was first, with left of its lease, for so long.
func Dead(lease, left, since time.Duration) bool {
	sh := &share{c: &consumer{t: &Transport{o: settings{lease: lease}}}}
	return sh.dead(left.Microseconds(), &sighting{left: left, since: time.Now().Add(-since)})
}

// ListStatements are those of PostgreSQL that take lists as long as a batch.
func ListStatements() map[string]string {
	return map[string]string{
		"settle": settlePostgres, "forget": forgetPostgres, "by id": byIDPostgres, "insert": insertPostgres,
		"delay": delayPostgres, "attempt": attemptPostgres, "clean": fmt.Sprintf(cleanPostgres, postgres{}.unread()),
	}
}
