// Package sqldb opens the databases that the sql transport and the dedup store
// share: connections with the settings both rely on, migrations under a lock,
// transactions that wait for a busy database, and the signals by which readers
// learn of writes.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Values of [Options.Synchronous].
const (
	SyncNormal = "normal" // a power cut may undo the last commits; a crash of the process does not
	SyncFull   = "full"   // what is committed survives a power cut
)

// Options says which database to open, and how.
type Options struct {
	// Path of the SQLite file. It is created, readable by its owner alone.
	Path string
	// Synchronous is SyncNormal or SyncFull. Default: SyncFull.
	Synchronous string
	// Verify creates and migrates nothing: a missing file or an older schema
	// is an [UnusableError] that says so.
	Verify bool
}

// DB is one open database. All who open the same file in one process share
// its connections; each closes what it got.
type DB struct {
	// Writer has the one connection that writes. Its transactions begin
	// IMMEDIATE: they never fail half-way for want of the lock.
	Writer *sql.DB
	// Reader has a few connections that cannot write.
	Reader *sql.DB
	// Path is absolute, with links resolved.
	Path string

	*shared
	release sync.Once
}

// Now is an SQL expression for the database's clock, in microseconds.
const Now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"

const readers = 4

// logLimit is what the write-ahead log is cut to when it begins anew, which is
// after 1,000 pages, or later, when the last of those is gone who read an old state.
const logLimit = 16 << 20

// shared is what all handles of one file have in common.
type shared struct {
	key     string
	handles int // guarded by registry.mu

	opening chan struct{} // one at a time opens or migrates this file
	writer  *sql.DB
	reader  *sql.DB
	file    os.FileInfo

	*signals
	*statements
	*changes
}

type registry struct {
	mu    sync.Mutex
	files map[string]*shared
}

// open is a global because what it counts is: the files this process has open.
// Two writers of one process would wait for each other by polling.
var open = registry{files: map[string]*shared{}}

// Open opens a database and brings its schema up to date. It waits, until ctx
// ends, while another program has the file locked or migrates it.
func Open(ctx context.Context, o Options) (*DB, error) {
	path, err := o.check()
	if err != nil {
		return nil, err
	}
	s := open.acquire(path + "|" + o.Synchronous)
	if err := s.prepare(ctx, path, o); err != nil {
		return nil, errors.Join(err, open.drop(s))
	}
	return &DB{Writer: s.writer, Reader: s.reader, Path: path, shared: s}, nil
}

// present refuses a file that was taken away or replaced: what is written to it
// would be lost, without a word from SQLite.
func (d *DB) present() error {
	if info, err := os.Stat(d.Path); err == nil && os.SameFile(info, d.file) {
		return nil
	}
	return &UnusableError{Path: d.Path, Problem: "was removed or replaced while it was open: stop all workers before that"}
}

// Close gives up the handle; with the last one the connections go. It may be called twice.
func (d *DB) Close() error {
	var err error
	d.release.Do(func() { err = open.drop(d.shared) })
	return err
}

func (r *registry) acquire(key string) *shared {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.files[key]
	if s == nil {
		s = &shared{key: key, opening: make(chan struct{}, 1), signals: newSignals(), statements: newStatements(), changes: &changes{}}
		r.files[key] = s
	}
	s.handles++
	return s
}

func (r *registry) drop(s *shared) error {
	r.mu.Lock()
	s.handles--
	last := s.handles == 0
	if last {
		delete(r.files, s.key)
	}
	r.mu.Unlock()
	if !last || s.writer == nil {
		return nil
	}
	// The readers go first: the last connection to leave folds the log into
	// the database, and must be able to write.
	return errors.Join(s.changes.close(), s.statements.close(), s.reader.Close(), s.writer.Close())
}

// prepare opens the connections if nobody has, and sees to the schema.
func (s *shared) prepare(ctx context.Context, path string, o Options) error {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return fmt.Errorf("database %s: opening: %w", path, context.Cause(ctx))
	}
	if o.Verify {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return &UnusableError{Path: path, Problem: "does not exist, and topology: verify creates nothing: create it with topology: declare"}
		}
	} else if err := create(path); err != nil {
		return err
	}
	if s.writer == nil {
		if err := s.connect(path, o.Synchronous); err != nil {
			return err
		}
	}
	var err error
	if o.Verify {
		err = verify(ctx, s.writer, path)
	} else {
		err = migrate(ctx, s.writer, path)
	}
	if err == nil && s.file == nil {
		s.file, err = os.Stat(path)
	}
	if code(err) == cantOpen {
		err = &UnusableError{Path: path, Problem: "cannot be opened: give this user the right to read and write the file and its folder", Err: err}
	}
	return explain(path, err)
}

func (s *shared) connect(path, synchronous string) error {
	pragmas := []string{"busy_timeout(200)", "synchronous(" + synchronous + ")", "foreign_keys(0)", fmt.Sprintf("journal_size_limit(%d)", logLimit), "temp_store(2)"}
	writer, err := sql.Open("sqlite", dsn(path, "immediate", append(pragmas, "page_size(8192)", "cache_size(-16000)")))
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	reader, err := sql.Open("sqlite", dsn(path, "deferred", append(pragmas, "query_only(1)")))
	if err != nil {
		return errors.Join(fmt.Errorf("database %s: %w", path, err), writer.Close())
	}
	writer.SetMaxOpenConns(1)
	reader.SetMaxOpenConns(readers)
	reader.SetMaxIdleConns(readers)
	s.writer, s.reader, s.changes.reader = writer, reader, reader
	return nil
}

func dsn(path, txlock string, pragmas []string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive letter
	}
	q := url.Values{"_txlock": {txlock}, "_error_rc": {"1"}, "_pragma": pragmas}
	return "file:" + (&url.URL{Path: slashed}).EscapedPath() + "?" + q.Encode()
}

// check refuses what cannot be a database, and gives its absolute path.
func (o *Options) check() (string, error) {
	switch o.Synchronous {
	case "":
		o.Synchronous = SyncFull
	case SyncNormal, SyncFull:
	default:
		return "", &UnusableError{Path: o.Path, Problem: fmt.Sprintf("synchronous is %q: say %s or %s", o.Synchronous, SyncNormal, SyncFull)}
	}
	if o.Path == "" {
		return "", &UnusableError{Path: `""`, Problem: "has no name: say sqlite://worker.db"}
	}
	if strings.Contains(o.Path, ":memory:") || strings.Contains(o.Path, "mode=memory") {
		return "", &UnusableError{Path: o.Path, Problem: "lives in one connection's memory only: name a file, or use memory:// as the broker"}
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return "", fmt.Errorf("database %s: %w", o.Path, err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", &UnusableError{Path: path, Problem: "folder " + filepath.Dir(path) + " does not exist: create it"}
	}
	if err != nil {
		return "", &UnusableError{Path: path, Problem: "its folder cannot be read", Err: err}
	}
	path = filepath.Join(dir, filepath.Base(path))
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", &UnusableError{Path: path, Problem: "cannot be looked at", Err: err}
	case info.IsDir():
		return "", &UnusableError{Path: path, Problem: "is a directory: name a file, such as " + filepath.Join(path, "worker.db")}
	case info.Mode().Perm()&0o222 == 0:
		return "", &UnusableError{Path: path, Problem: "is read-only: give this user the right to write it"}
	}
	return path, nil
}

// create makes an empty file with the right mode; SQLite's own files get the
// mode of the database. An existing file is never opened here: closing it
// again would take away the locks that SQLite has on it.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return &UnusableError{Path: path, Problem: "cannot be created: give this user the right to write the folder", Err: err}
	}
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	return errors.Join(f.Chmod(0o600), f.Close()) // whatever the umask has taken away
}
