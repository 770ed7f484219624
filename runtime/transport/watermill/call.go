package watermill

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/leat-io/leat/runtime/transport"
)

// await bounds by ctx a call that knows no context. A result that comes too
// late goes to drop. A panic of the call is its error.
func await[T any](ctx context.Context, call func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.err = &transport.Panicked{Value: v, Stack: debug.Stack()}
			}
			done <- r
		}()
		r.v, r.err = call()
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil && drop != nil {
				drop(r.v)
			}
		}()
		var none T
		return none, fmt.Errorf("it did not return: %w", ctx.Err())
	}
}

// awaitErr is await for a call that returns nothing else.
func awaitErr(ctx context.Context, call func() error) error {
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, call() }, nil)
	return err
}
