package dir

import (
	"context"
	"fmt"
	"os"
	"time"
)

// lock waits for it: who is frozen with it must not freeze others for longer
// than they want.
func lock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if f, err := tryLock(path, exclusive); f != nil || err != nil {
			return f, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", path, ctx.Err())
		}
	}
}
