package middleware_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

type spy struct {
	middleware.DedupStore

	mu     sync.Mutex
	fail   error
	calls  map[string]int
	last   middleware.DedupKey
	renews int // claims renewed
}

func (s *spy) call(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	s.calls[name]++
	return s.fail
}

func (s *spy) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *spy) Claim(ctx context.Context, k middleware.DedupKey, lease time.Duration) (middleware.DedupState, error) {
	s.mu.Lock()
	s.last = k
	s.mu.Unlock()
	if err := s.call("claim"); err != nil {
		return middleware.DedupState{}, err
	}
	return s.DedupStore.Claim(ctx, k, lease)
}

func (s *spy) Renew(ctx context.Context, lease time.Duration, claims ...middleware.DedupClaim) error {
	s.mu.Lock()
	s.renews += len(claims)
	s.mu.Unlock()
	if err := s.call("renew"); err != nil {
		return err
	}
	return s.DedupStore.Renew(ctx, lease, claims...)
}

func (s *spy) Done(ctx context.Context, c middleware.DedupClaim, window time.Duration) error {
	if err := s.call("done"); err != nil {
		return err
	}
	return s.DedupStore.Done(ctx, c, window)
}

func (s *spy) Release(ctx context.Context, c middleware.DedupClaim) error {
	if err := s.call("release"); err != nil {
		return err
	}
	return s.DedupStore.Release(ctx, c)
}

type lines struct{ n atomic.Int32 }

func (l *lines) Write(p []byte) (int, error) { l.n.Add(1); return len(p), nil }

func TestDedupFailsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0), fail: errBoom}
		var e effects
		var logged lines
		h := newDedup(t, middleware.DedupOptions{Store: store, Log: slog.New(slog.NewTextHandler(&logged, nil))})(e.handle)
		for range 100 {
			a := attempt(t, "1", 1)
			_, err := h(a.Message())
			isHeld(t, err, 2*time.Second)
			require.ErrorIs(t, err, errBoom)
			_, hooks, _ := a.End()
			require.Empty(t, hooks)
			pass(250 * time.Millisecond)
		}
		require.Zero(t, e.of("1"))
		require.Equal(t, int32(3), logged.n.Load(), "25 s of it")
		store.failWith(nil)
		_, err := h(attempt(t, "1", 1).Message())
		require.NoError(t, err)
	})
}

func TestDedupShutdownDuringAClaimPasses(t *testing.T) {
	t.Parallel()
	a := attempt(t, "1", 1)
	store := &spy{DedupStore: middleware.NewMemoryDedup(0), fail: context.Canceled}
	a.Delivery().Assignment.Revoke()
	_, err := newDedup(t, middleware.DedupOptions{Store: store})((&effects{}).handle)(a.Message())
	require.Equal(t, context.Canceled, err)
}

func TestDedupDoneIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
		h := newDedup(t, middleware.DedupOptions{Store: store})((&effects{}).handle)
		a := attempt(t, "1", 1)
		_, err := h(a.Message())
		require.NoError(t, err)
		_, hooks, _ := a.End()
		require.Len(t, hooks, 1)
		store.failWith(errBoom)
		require.ErrorIs(t, hooks[0](t.Context(), transport.Handled), errBoom)
		store.failWith(nil)
		pass(time.Minute)
		_, err = h(attempt(t, "1", 1).Message())
		isHeld(t, err, time.Second)
		require.NoError(t, hooks[0](t.Context(), transport.Handled))
		_, err = h(attempt(t, "1", 1).Message())
		require.Equal(t, transport.Already, err)
	})
}

func TestDedupLetsGoWhenTheDrainHasRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
		var logged lines
		h := newDedup(t, middleware.DedupOptions{Store: store, Log: slog.New(slog.NewTextHandler(&logged, nil))})((&effects{}).handle)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for id, o := range map[string]transport.Outcome{"1": transport.Handled, "2": transport.Interrupted} {
			a := attempt(t, id, 1)
			_, err := h(a.Message())
			require.NoError(t, err)
			_, hooks, _ := a.End()
			store.failWith(context.Canceled)
			err = hooks[0](ended, o)
			require.Equal(t, o == transport.Handled, err != nil)
			store.failWith(nil)
		}
		pass(11 * time.Second)
		require.Zero(t, logged.n.Load())
		for _, id := range []string{"1", "2"} {
			_, err := h(attempt(t, id, 1).Message())
			require.NoError(t, err)
		}
	})
}

func TestDedupReleaseThatFailsEndsWithTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
		h := newDedup(t, middleware.DedupOptions{Store: store})((&effects{}).handle)
		a := attempt(t, "1", 1)
		_, err := h(a.Message())
		require.NoError(t, err)
		store.failWith(errBoom)
		settle(t, a, transport.Retried)
		store.failWith(nil)
		_, err = h(attempt(t, "1", 2).Message())
		isHeld(t, err, time.Second)
		pass(11 * time.Second)
		_, err = h(attempt(t, "1", 2).Message())
		require.NoError(t, err)
	})
}

func TestDedupRenewsWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
		h := newDedup(t, middleware.DedupOptions{Store: store})((&effects{}).handle)
		slow := []*transport.Attempt{attempt(t, "1", 1), attempt(t, "2", 1), attempt(t, "3", 1)}
		for _, a := range slow {
			_, err := h(a.Message())
			require.NoError(t, err)
		}
		for range 60 {
			pass(3 * time.Second)
			_, err := h(attempt(t, "1", 1).Message())
			isHeld(t, err, time.Second)
			short := attempt(t, "short", 1)
			_, err = h(short.Message())
			require.NoError(t, err)
			settle(t, short, transport.Retried)
		}
		require.Equal(t, 3*store.calls["renew"], store.renews, "all in one call, and no short ones")
		require.InDelta(t, 180/4, store.calls["renew"], 1, "each is two fifths of a lease old")
		for _, a := range slow {
			settle(t, a, transport.Handled)
		}
		before := store.calls["renew"]
		pass(time.Hour)
		require.Equal(t, before, store.calls["renew"])
	})
}

func TestDedupRenewalSurvivesAShortOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
		h := newDedup(t, middleware.DedupOptions{Store: store})((&effects{}).handle)
		_, err := h(attempt(t, "1", 1).Message())
		require.NoError(t, err)
		pass(3 * time.Second)
		store.failWith(errBoom)
		pass(4 * time.Second)
		store.failWith(nil)
		pass(20 * time.Second)
		_, err = h(attempt(t, "1", 1).Message())
		isHeld(t, err, time.Second)
	})
}

func TestDedupTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := middleware.NewMemoryDedup(0)
		stood := &spy{DedupStore: shared}
		var logged lines
		first := attempt(t, "1", 1)
		_, err := newDedup(t, middleware.DedupOptions{Store: stood, Log: slog.New(slog.NewTextHandler(&logged, nil))})((&effects{}).handle)(first.Message())
		require.NoError(t, err)
		stood.failWith(errBoom) // no renewal gets through
		pass(11 * time.Second)
		stood.failWith(nil)

		other := newDedup(t, middleware.DedupOptions{Store: shared})((&effects{}).handle)
		second := attempt(t, "1", 1)
		_, err = other(second.Message())
		require.NoError(t, err)
		before := logged.n.Load()
		settle(t, first, transport.Handled)
		require.Equal(t, before+1, logged.n.Load())
		_, err = other(attempt(t, "1", 1).Message())
		isHeld(t, err, time.Second)
		settle(t, second, transport.Handled)
		_, err = other(attempt(t, "1", 1).Message())
		require.Equal(t, transport.Already, err)
	})
}
