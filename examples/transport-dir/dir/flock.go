//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const (
	exclusive = syscall.LOCK_EX
	shared    = syscall.LOCK_SH
)

// tryLock takes the lock of a file, which is given up by closing it. It
// returns nil where another has it. Locks are of the file as it was opened, so that they
// work within a process too.
func tryLock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, f.Close()
	default:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
}
