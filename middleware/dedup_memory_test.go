package middleware_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/internal/deduptest"
)

func TestMemoryDedup(t *testing.T) {
	t.Parallel()
	for _, c := range deduptest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, middleware.NewMemoryDedup(0), pass)
			})
		})
	}
}

func TestMemoryDedupForgetsTheOldestFirst(t *testing.T) {
	t.Parallel()
	const bound = 100
	s := middleware.NewMemoryDedup(bound)
	claim := func(i int) middleware.DedupState {
		state, err := s.Claim(t.Context(), middleware.DedupKey{Key: strconv.Itoa(i)}, time.Minute)
		require.NoError(t, err)
		return state
	}
	done := func(i int, token int64) {
		c := middleware.DedupClaim{DedupKey: middleware.DedupKey{Key: strconv.Itoa(i)}, Token: token}
		require.NoError(t, s.Done(t.Context(), c, time.Hour))
	}
	held := claim(-1)
	for i := range 10 * bound {
		done(i, claim(i).Token)
	}
	for i := 9 * bound; i < 10*bound; i++ {
		require.Equal(t, middleware.DedupDone, claim(i).Status)
	}
	require.Equal(t, middleware.DedupHeld, claim(-1).Status, "a claim is never forgotten")
	done(-1, held.Token)
	require.Equal(t, middleware.DedupFresh, claim(9*bound).Status, "the oldest went for it")
	require.Equal(t, middleware.DedupFresh, claim(0).Status)
}

func BenchmarkMemoryDedup(b *testing.B) {
	s := middleware.NewMemoryDedup(0)
	keys := make([]string, 1<<18)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := middleware.DedupKey{Scope: "g", Key: keys[i%len(keys)]}
		i++
		state, _ := s.Claim(b.Context(), k, time.Minute)
		_ = s.Done(b.Context(), middleware.DedupClaim{DedupKey: k, Token: state.Token}, time.Hour)
	}
}
