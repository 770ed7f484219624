package transport_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

// TestWindow drives a window and a plain set of unsettled offsets alike.
func TestWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1<<40)).Draw(t, "start")
		limit := rapid.IntRange(1, 400).Draw(t, "limit")
		w := transport.NewWindow(start, limit)
		open, settled := map[int64]bool{}, map[int64]bool{}
		next, mark := start, start

		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				gap := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 70), rapid.Int64Range(0, 2000)).Draw(t, "gap")
				run := rapid.IntRange(1, 100).Draw(t, "run")
				if len(open) == 0 {
					mark = next + gap
				}
				for i := range int64(run) {
					w.Add(next + gap + i)
					open[next+gap+i] = true
				}
				next += gap + int64(run)
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing open")
				}
				some := rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(open))), 1, min(50, len(open)), rapid.ID[int64])
				for _, offset := range some.Draw(t, "offsets") {
					require.True(t, w.Settle(offset))
					require.False(t, w.Settle(offset), "the second time")
					delete(open, offset)
					settled[offset] = true
				}
				mark = next
				for offset := range open {
					mark = min(mark, offset)
				}
			},
			"settle what is not waited for": func(t *rapid.T) {
				offset := rapid.Int64Range(max(0, start-100), next+2000).Draw(t, "offset")
				if !open[offset] {
					require.False(t, w.Settle(offset))
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, mark, w.Mark())
				require.Equal(t, len(open), w.Open())
				require.Equal(t, next-mark >= int64(limit), w.Full())
				for offset := range open {
					require.False(t, w.Done(offset), "offset %d", offset)
				}
				for offset := range settled {
					require.True(t, w.Done(offset), "offset %d", offset)
				}
			},
		})
	})
}

func TestWindowBehindOneThatIsStuck(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	w := transport.NewWindow(7, n)
	for offset := int64(7); offset < 7+n; offset++ {
		require.False(t, w.Full())
		w.Add(offset)
		if offset > 7 {
			w.Settle(offset)
		}
	}
	require.True(t, w.Full())
	require.Equal(t, int64(7), w.Mark())
	require.True(t, w.Settle(7))
	require.Equal(t, int64(7+n), w.Mark())
	require.False(t, w.Full())
}
