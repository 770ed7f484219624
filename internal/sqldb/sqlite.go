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
	"syscall"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Now is [Dialect.Now] of SQLite.
const Now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"

const readers = 4

// logLimit is what the write-ahead log is cut to when it begins anew, which is
// after 1,000 pages, or later, when the last of those is gone who read an old state.
const logLimit = 16 << 20

// present refuses a file that was taken away or replaced: what is written to it
// would be lost, without a word from SQLite.
func (d *DB) present() error {
	if d.Dialect != SQLite {
		return nil
	}
	if info, err := os.Stat(d.Path); err == nil && os.SameFile(info, d.file) {
		return nil
	}
	return &UnusableError{Database: d.Path, Problem: "was removed or replaced while it was open: stop all workers before that"}
}

func (s *shared) prepareFile(ctx context.Context, verifyOnly bool) error {
	path := s.target.path
	if verifyOnly {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return &UnusableError{Database: path, Problem: "does not exist, and topology: verify creates nothing: create it with topology: declare"}
		}
	} else if err := create(path); err != nil {
		return err
	}
	if s.writer == nil {
		if err := s.connectFile(path, s.target.synchronous); err != nil {
			return err
		}
	}
	var err error
	if verifyOnly {
		err = verify(ctx, s.writer, path)
	} else {
		err = migrate(ctx, s.writer, path)
	}
	if err == nil && s.file == nil {
		s.file, err = os.Stat(path)
	}
	if code(err) == cantOpen {
		err = &UnusableError{Database: path, Problem: "cannot be opened: give this user the right to read and write the file and its folder", Err: err}
	}
	return explain(path, err)
}

func (s *shared) connectFile(path, synchronous string) error {
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
		return "", &UnusableError{Database: o.Path, Problem: fmt.Sprintf("synchronous is %q: say %s or %s", o.Synchronous, SyncNormal, SyncFull)}
	}
	if o.Path == "" {
		return "", &UnusableError{Database: `""`, Problem: "has no name: say sqlite://worker.db"}
	}
	if strings.Contains(o.Path, ":memory:") || strings.Contains(o.Path, "mode=memory") {
		return "", &UnusableError{Database: o.Path, Problem: "lives in one connection's memory only: name a file, or use memory:// as the broker"}
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return "", fmt.Errorf("database %s: %w", o.Path, err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", &UnusableError{Database: path, Problem: "folder " + filepath.Dir(path) + " does not exist: create it"}
	}
	if err != nil {
		return "", &UnusableError{Database: path, Problem: "its folder cannot be read", Err: err}
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
		return "", &UnusableError{Database: path, Problem: "cannot be looked at", Err: err}
	case info.IsDir():
		return "", &UnusableError{Database: path, Problem: "is a directory: name a file, such as " + filepath.Join(path, "worker.db")}
	case info.Mode().Perm()&0o222 == 0:
		return "", &UnusableError{Database: path, Problem: "is read-only: give this user the right to write it"}
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
		return &UnusableError{Database: path, Problem: "cannot be created: give this user the right to write the folder", Err: err}
	}
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	return errors.Join(f.Chmod(0o600), f.Close()) // whatever the umask has taken away
}
