package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// binary is the worker under test. It is built once, and never with the race
// detector: what is watched are processes.
type binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// build builds the main package, at the first call.
func (b *binary) build(ctx context.Context, pkg string) (path string, err error) {
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "conformance-"); b.err != nil {
			return
		}
		b.path = filepath.Join(b.dir, "worker")
		out, err := exec.CommandContext(ctx, "go", "build", "-o", b.path, pkg).CombinedOutput() //nolint:gosec // what the caller names
		if err != nil {
			b.err = fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	})
	return b.path, b.err
}

func (b *binary) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir) // the system's folder for what may be left behind
	}
}
