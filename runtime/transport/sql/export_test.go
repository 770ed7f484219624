package sql

import (
	"context"

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
