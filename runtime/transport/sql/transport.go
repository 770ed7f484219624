// Package sql has a database as a broker: topics, groups and messages are rows
// in SQLite, PostgreSQL, MariaDB or MySQL.
//
// A message is one row of leat_messages, and one narrow row of leat_deliveries
// for each group that reads its topic. Each partition of a topic is owned, for
// one group, by one consumer, which reads it by a cursor without writing
// anything, and deletes in batches what is settled. What makes that safe is in
// [spell]: rows are the truth, and the cursor is a hint.
//
// Rows can be published by hand: insert into leat_messages, and the same id
// and part into leat_deliveries for each group. topic_id and part (0 up to the
// topic's partitions) must be right; whatever else they hold is delivered.
package sql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

// Transport is one database. It connects when it is first used.
type Transport struct {
	o  settings
	d  dialect
	to sqldb.Options // what to open

	lost memberships

	turn   chan struct{} // held to change what follows; a channel, so that waiting ends with a context
	mode   transport.Topology
	db     *database
	closed bool
	stop   context.CancelFunc // of the sweeper
	swept  chan struct{}
}

// openWait bounds one try to open or declare: a file that another program has
// locked, or a server that is far away and has no tables yet. The caller's next
// try comes with backoff, and says so.
func openWait(d dialect) time.Duration {
	if _, file := d.(sqlite); file {
		return 5 * time.Second
	}
	return 30 * time.Second
}

var _ transport.Transport = (*Transport)(nil)

// OpenSQLite makes the transport of an SQLite file. Nothing is opened yet; the
// error is about o alone.
func OpenSQLite(o Options) (*Transport, error) {
	return open(sqlite{}, settings{o.Partitions, o.Retention, o.Poll, o.Lease},
		sqldb.Options{Dialect: sqldb.SQLite, Path: o.Path, Synchronous: o.Synchronous})
}

// OpenPostgres makes the transport of a PostgreSQL database, likewise.
func OpenPostgres(o ServerOptions) (*Transport, error) {
	return openServer(postgres{}, sqldb.Postgres, o)
}

// OpenMySQL makes the transport of a MariaDB or MySQL database, likewise.
func OpenMySQL(o ServerOptions) (*Transport, error) {
	return openServer(mysql{}, sqldb.MySQL, o)
}

func openServer(d dialect, named sqldb.Dialect, o ServerOptions) (*Transport, error) {
	to := sqldb.Options{Dialect: named, Server: o.Server}
	if err := to.Validate(); err != nil {
		return nil, transport.Refuse(err)
	}
	return open(d, settings{o.Partitions, o.Retention, o.Poll, o.Lease}, to)
}

func open(d dialect, o settings, to sqldb.Options) (*Transport, error) {
	if err := o.complete(d.kind()); err != nil {
		return nil, err
	}
	return &Transport{o: o, d: d, to: to, turn: make(chan struct{}, 1)}, nil
}

// Kind is "sqlite", "postgres" or "mysql".
func (t *Transport) Kind() string { return t.d.kind() }

// Capabilities of a database.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{
		KeyOrder:          transport.ScopeGroup,
		Attempts:          transport.KeepDurable,
		DurableDelay:      true,
		StableCoordinates: true,
		ReleaseInOrder:    true,
		ByteWindow:        true,
		History:           true,
		Depth:             true,
		Browse:            transport.BrowseReads,
		Durable:           true,
		Networked:         t.to.Dialect.Server(),
		Transactions:      t.to.Dialect.Server(),
		SQL:               true,
		MaxNameLength:     transport.MaxName,
	}
}

// connect opens the database once, and again after an error. What is created
// depends on mode; the empty one is that of the last Declare.
func (t *Transport) connect(ctx context.Context, mode transport.Topology) (*database, error) {
	ctx, cancel := context.WithTimeout(ctx, openWait(t.d))
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s broker: opening: %w", t.d.kind(), context.Cause(ctx))
	}
	if t.closed {
		return nil, fmt.Errorf("%s broker: %w", t.d.kind(), transport.ErrClosed)
	}
	if mode != "" {
		t.mode = mode
	}
	if t.db != nil {
		return t.db, nil
	}
	to := t.to
	to.Verify = !t.mayCreate()
	opened, err := sqldb.Open(ctx, to)
	if err != nil {
		return nil, refuse(err)
	}
	db := &database{DB: opened, d: t.d}
	t.db = db
	sweeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop, t.swept = stop, make(chan struct{})
	go func() {
		defer close(t.swept)
		(&sweeper{db}).run(sweeping)
	}()
	return db, nil
}

// mayCreate tells whether topics, and the schema itself, may be made. It is
// for whoever has the turn.
func (t *Transport) mayCreate() bool {
	return t.mode == "" || t.mode == transport.TopologyDeclare
}

// creates is mayCreate for anybody.
func (t *Transport) creates() bool {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	return t.mayCreate()
}

// Close gives up the database.
func (t *Transport) Close(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s broker: closing: %w", t.d.kind(), context.Cause(ctx))
	}
	t.closed = true
	if t.db == nil {
		return nil
	}
	t.lost.resign(ctx)
	t.stop()
	<-t.swept
	err := t.db.Close()
	t.db = nil
	return err
}

// refuse marks what waiting will not mend.
func refuse(err error) error {
	if sqldb.Unusable(err) && !transport.Refused(err) {
		return transport.Refuse(err)
	}
	return err
}

// errMissing is a topic or group that is not there and is not ours to make.
var errMissing = errors.New("does not exist")
