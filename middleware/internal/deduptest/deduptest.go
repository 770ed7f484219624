// Package deduptest is the suite that every [middleware.DedupStore] passes.
package deduptest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
)

// Case is one rule of the contract. Pass lets the store's time go by.
type Case struct {
	Name string
	Run  func(t *testing.T, s middleware.DedupStore, pass func(time.Duration))
}

const (
	lease  = 10 * time.Second
	window = time.Hour
)

// Cases is the contract. Each case wants an empty store.
func Cases() []Case {
	return []Case{
		{"done after a claim is a duplicate until the window ends", doneIsKept},
		{"a claim is held until it is released", heldIsKept},
		{"a claim that ran out is taken over", takeover},
		{"a claim that ran out and nobody took is still good", lateButFirst},
		{"renewed claims do not run out", renewed},
		{"tokens only rise", tokensRise},
		{"keys are told apart to the byte", keysApart},
		{"of many claims at once one succeeds", race},
	}
}

var body = middleware.DedupBody{1, 2, 3}

func key(s string) middleware.DedupKey {
	return middleware.DedupKey{Scope: "group\x1ftopic", Key: s, Body: body}
}

func claim(t *testing.T, s middleware.DedupStore, k middleware.DedupKey) middleware.DedupState {
	t.Helper()
	state, err := s.Claim(t.Context(), k, lease)
	require.NoError(t, err)
	return state
}

func fresh(t *testing.T, s middleware.DedupStore, k middleware.DedupKey) middleware.DedupClaim {
	t.Helper()
	state := claim(t, s, k)
	require.Equal(t, middleware.DedupFresh, state.Status)
	return middleware.DedupClaim{DedupKey: k, Token: state.Token}
}

func doneIsKept(t *testing.T, s middleware.DedupStore, pass func(time.Duration)) {
	t.Helper()
	for _, k := range []middleware.DedupKey{key("a"), {Scope: "group\x1ftopic", Key: "without a body"}} {
		c := fresh(t, s, k)
		require.NoError(t, s.Done(t.Context(), c, window))
		require.NoError(t, s.Done(t.Context(), c, window), "may be repeated")
		require.NoError(t, s.Release(t.Context(), c), "changes nothing any more")
		require.NoError(t, s.Renew(t.Context(), lease, c), "neither does this")
		pass(window - time.Second)
		require.Equal(t, middleware.DedupState{Status: middleware.DedupDone, Body: k.Body}, claim(t, s, k))
		pass(2 * time.Second)
		fresh(t, s, k)
	}
}

func heldIsKept(t *testing.T, s middleware.DedupStore, pass func(time.Duration)) {
	t.Helper()
	c := fresh(t, s, key("a"))
	pass(4 * time.Second)
	held := claim(t, s, key("a"))
	require.Equal(t, middleware.DedupHeld, held.Status)
	require.Greater(t, held.Left, time.Duration(0))
	require.LessOrEqual(t, held.Left, 6*time.Second)
	require.NoError(t, s.Release(t.Context(), c))
	require.NoError(t, s.Release(t.Context(), c))
	fresh(t, s, key("a"))
}

func takeover(t *testing.T, s middleware.DedupStore, pass func(time.Duration)) {
	t.Helper()
	first := fresh(t, s, key("a"))
	pass(lease + time.Second)
	other := key("a")
	other.Body = middleware.DedupBody{9}
	second := fresh(t, s, other)
	require.Greater(t, second.Token, first.Token)

	require.ErrorIs(t, s.Done(t.Context(), first, window), middleware.ErrLost)
	require.NoError(t, s.Release(t.Context(), first))
	require.NoError(t, s.Renew(t.Context(), time.Hour, first))
	held := claim(t, s, key("a"))
	require.Equal(t, middleware.DedupHeld, held.Status, "still the second's")
	require.LessOrEqual(t, held.Left, lease, "and not renewed by the first")

	require.NoError(t, s.Done(t.Context(), second, window))
	require.ErrorIs(t, s.Done(t.Context(), first, window), middleware.ErrLost)
	require.Equal(t, middleware.DedupState{Status: middleware.DedupDone, Body: other.Body}, claim(t, s, key("a")))
}

func lateButFirst(t *testing.T, s middleware.DedupStore, pass func(time.Duration)) {
	t.Helper()
	c := fresh(t, s, key("a"))
	pass(2 * lease)
	require.NoError(t, s.Done(t.Context(), c, window))
	require.Equal(t, middleware.DedupDone, claim(t, s, key("a")).Status)
}

func renewed(t *testing.T, s middleware.DedupStore, pass func(time.Duration)) {
	t.Helper()
	a, b, gone := fresh(t, s, key("a")), fresh(t, s, key("b")), fresh(t, s, key("gone"))
	require.NoError(t, s.Release(t.Context(), gone))
	for range 3 {
		pass(lease * 4 / 5)
		require.NoError(t, s.Renew(t.Context(), lease, a, gone, b))
	}
	require.Equal(t, middleware.DedupHeld, claim(t, s, key("a")).Status)
	require.Equal(t, middleware.DedupHeld, claim(t, s, key("b")).Status)
	fresh(t, s, key("gone"))
	pass(lease + time.Second)
	fresh(t, s, key("a"))
}

func tokensRise(t *testing.T, s middleware.DedupStore, pass func(time.Duration)) {
	t.Helper()
	last := int64(0)
	for i := range 20 {
		c := fresh(t, s, key("a"))
		require.Greater(t, c.Token, last)
		last = c.Token
		if i%2 == 0 {
			require.NoError(t, s.Release(t.Context(), c))
		} else {
			pass(lease + time.Second)
		}
	}
}

func keysApart(t *testing.T, s middleware.DedupStore, _ func(time.Duration)) {
	t.Helper()
	for _, name := range []string{"a", "A", "a ", " a", "ä", "a\u0308", "é", "e", "1", "01", "1.0", "%", "_", "a\nb"} {
		for _, scope := range []string{"g\x1ft", "g\x1fT", "h\x1ft"} {
			fresh(t, s, middleware.DedupKey{Scope: scope, Key: name})
		}
	}
}

func race(t *testing.T, s middleware.DedupStore, _ func(time.Duration)) {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 20 {
			wg.Go(func() {
				state, err := s.Claim(t.Context(), key(name), lease)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if state.Status == middleware.DedupFresh {
					won++
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, won)
	}
}
