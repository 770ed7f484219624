package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"sync"
)

// recorder is a TB that keeps failures instead of failing a test.
type recorder struct {
	name string
	ctx  context.Context //nolint:containedctx // it is the context of the case, as testing.T has one

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

var _ TB = (*recorder)(nil)

// record runs fn to its end, be that a return, FailNow or a panic, and then
// its clean-ups, last one first. It returns what failed.
func record(ctx context.Context, name string, fn func(TB)) []string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rec := &recorder{name: name, ctx: ctx}
	rec.guard(func() { fn(rec) })
	cancel()
	for next := rec.pop(); next != nil; next = rec.pop() {
		rec.guard(next)
	}
	return rec.failures
}

// guard runs fn on a goroutine of its own, which FailNow ends.
func (rec *recorder) guard(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				rec.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		fn()
	}()
	<-done
}

// pop takes the clean-up added last; nil if there is none.
func (rec *recorder) pop() func() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	n := len(rec.cleanups)
	if n == 0 {
		return nil
	}
	fn := rec.cleanups[n-1]
	rec.cleanups = slices.Delete(rec.cleanups, n-1, n)
	return fn
}

// Helper has nothing to do: failures carry no position.
func (rec *recorder) Helper() {}

// Name is the name of the case.
func (rec *recorder) Name() string { return rec.name }

// Context ends before the clean-ups begin.
func (rec *recorder) Context() context.Context { return rec.ctx }

// Logf drops what it gets.
func (rec *recorder) Logf(string, ...any) {}

// Cleanup has fn called after the case.
func (rec *recorder) Cleanup(fn func()) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.cleanups = append(rec.cleanups, fn)
}

// Errorf records a failure.
func (rec *recorder) Errorf(format string, args ...any) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.failures = append(rec.failures, fmt.Sprintf(format, args...))
}

// FailNow ends the case.
func (rec *recorder) FailNow() { goruntime.Goexit() }

// TempDir makes a folder that goes with the case.
func (rec *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", filepath.Base(rec.name))
	if err != nil {
		rec.Errorf("temporary folder: %v", err)
		rec.FailNow()
	}
	rec.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			rec.Errorf("temporary folder: %v", err)
		}
	})
	return dir
}
