//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dir

import (
	"errors"
	"fmt"
	"os"
)

const (
	exclusive = iota
	shared
)

func tryLock(path string, _ int) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: no flock here: %w", path, errors.ErrUnsupported)
}
