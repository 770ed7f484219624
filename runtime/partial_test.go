package runtime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// partial is a consumer that leaves out what it is told.
type partial struct {
	transport.Consumer
	out *atomic.Pointer[leftOut]
}

type leftOut struct {
	why   string
	since time.Time
}

func (p partial) LeftOut() (string, time.Time) {
	if o := p.out.Load(); o != nil {
		return o.why, o.since
	}
	return "", time.Time{}
}

// TestLeftOut: a consumer that cannot read a part of its topic is blocked, says
// why, and goes on with the rest; it is not idle.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		var out atomic.Pointer[leftOut]
		w.tr = &patched{Transport: w.tr, consumer: func(c transport.Consumer) transport.Consumer { return partial{c, &out} }}
		w.consume(ok, w.policy())
		w.publish("in", msg("m", "k", "x"))
		require.Equal(w, runtime.StateRunning, w.settled().State)

		since := time.Now().Add(-time.Minute)
		out.Store(&leftOut{"partition 1 has no leader", since})
		w.publish("in", msg("n", "k", "x"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.ErrorIs(w, w.router.WaitIdle(ctx, 3*time.Second), context.DeadlineExceeded, "what is left out may hold work")
		s := w.router.Status()[0]
		require.Equal(w, runtime.StateBlocked, s.State)
		require.Equal(w, "partition 1 has no leader", s.Why)
		require.Equal(w, since, s.Since)
		require.Equal(w, int64(2), s.Count(transport.Handled))

		out.Store(nil)
		s = w.settled()
		require.Equal(w, runtime.StateRunning, s.State)
		require.Empty(w, s.Why)
	})
}
