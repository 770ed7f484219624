package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is one open database. All who open the same one in one process share
// its connections; each closes what it got.
type DB struct {
	// Writer of SQLite has the one connection that writes. Its transactions
	// begin IMMEDIATE: they never fail half-way for want of the lock. That of a
	// server has the pool's connections.
	Writer *sql.DB
	// Reader of SQLite has a few connections that cannot write. That of a server
	// is its Writer.
	Reader *sql.DB
	// Pool is what Writer takes its connections from. PostgreSQL only, else nil.
	Pool *pgxpool.Pool
	// Dialect of the database.
	Dialect Dialect
	// Name is what errors call the database: a path, or a URL without password.
	Name string
	// Path is absolute, with links resolved. SQLite only.
	Path string

	*shared
	release sync.Once
}

// shared is what all handles of one database have in common.
type shared struct {
	key     string
	target  *target
	handles int // guarded by registry.mu

	opening  chan struct{} // one at a time opens or migrates this database
	writer   *sql.DB
	reader   *sql.DB
	pool     *pgxpool.Pool
	migrator func() *sql.DB // of a server: two connections that may take their time
	file     os.FileInfo    // of SQLite

	retries atomic.Int64

	*signals
	*statements
	*changes
	*names
	remote *remote // nil where other processes are not heard
}

type registry struct {
	mu   sync.Mutex
	open map[string]*shared
}

// databases is a global because what it counts is: the databases this process
// has open. Two writers of one SQLite file would wait for each other by polling,
// and two pools of a server would take twice the connections.
var databases = registry{open: map[string]*shared{}}

// Open opens a database and brings its schema up to date. It waits, until ctx
// ends, while another program has it locked or migrates it.
func Open(ctx context.Context, o Options) (*DB, error) {
	t, err := o.target()
	if err != nil {
		return nil, err
	}
	s := databases.acquire(t)
	if err := s.prepare(ctx, o.Verify); err != nil {
		return nil, errors.Join(err, databases.drop(s))
	}
	return &DB{
		Writer: s.writer, Reader: s.reader, Pool: s.pool,
		Dialect: t.dialect, Name: t.name, Path: t.path, shared: s,
	}, nil
}

// Close gives up the handle; with the last one the connections go. It may be called twice.
func (d *DB) Close() error {
	var err error
	d.release.Do(func() { err = databases.drop(d.shared) })
	return err
}

// Retries is how often a transaction was run again after a conflict, since the
// database was opened.
func (d *DB) Retries() int64 { return d.retries.Load() }

func (r *registry) acquire(t *target) *shared {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.open[t.key]
	if s == nil {
		s = &shared{
			key: t.key, target: t, opening: make(chan struct{}, 1),
			signals: newSignals(), statements: newStatements(), changes: &changes{}, names: &names{dialect: t.dialect},
		}
		r.open[t.key] = s
	}
	s.handles++
	return s
}

func (r *registry) drop(s *shared) error {
	r.mu.Lock()
	s.handles--
	last := s.handles == 0
	if last {
		delete(r.open, s.key)
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	s.remote.close()
	if s.writer == nil {
		return nil
	}
	// The readers go first: the last connection to leave folds SQLite's log
	// into the database, and must be able to write.
	err := errors.Join(s.changes.close(), s.statements.close(), s.reader.Close(), s.writer.Close())
	if s.pool != nil {
		s.pool.Close()
	}
	return err
}

// prepare opens the connections if nobody has, and sees to the schema.
func (s *shared) prepare(ctx context.Context, verify bool) error {
	return s.opened(ctx, func() error {
		if s.target.dialect == SQLite {
			return s.prepareFile(ctx, verify)
		}
		return s.explain(s.prepareServer(ctx, verify))
	})
}

// opened runs fn while nobody else opens this database.
func (s *shared) opened(ctx context.Context, fn func() error) error {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
		return fn()
	case <-ctx.Done():
		return fmt.Errorf("database %s: opening: %w", s.target.name, context.Cause(ctx))
	}
}
