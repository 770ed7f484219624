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
		type gap struct{ from, to int64 }
		var wide []gap // those that have no bits

		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				width := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 70), rapid.Int64Range(0, 2000), rapid.Int64Range(100, 200), rapid.Int64Range(0, 1<<40)).Draw(t, "gap")
				run := rapid.IntRange(1, 100).Draw(t, "run")
				if len(open) == 0 {
					mark, wide = next+width, nil
				} else if width > 128 {
					wide = append(wide, gap{next, next + width})
				}
				for i := range int64(run) {
					w.Add(next + width + i)
					open[next+width+i] = true
				}
				next += width + int64(run)
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
				require.Equal(t, next, w.Next())
				require.Equal(t, slices.Sorted(maps.Keys(open)), slices.Collect(w.Pending()))
				span := next - mark
				for _, g := range wide {
					if g.from >= mark {
						span -= g.to - g.from
					}
					require.False(t, w.Settle(g.from+(g.to-g.from)/2), "in a gap")
				}
				require.Equal(t, span >= int64(limit), w.Full())
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

// TestWindowOverGaps: what compaction leaves out costs nothing, however much it is.
func TestWindowOverGaps(t *testing.T) {
	t.Parallel()
	w := transport.NewWindow(0, 100)
	w.Add(0)
	for i := int64(1); i < 50; i++ {
		w.Add(i << 50)
		require.False(t, w.Done(i<<50-1))
		require.True(t, w.Settle(i<<50))
	}
	require.False(t, w.Full())
	require.Equal(t, []int64{0}, slices.Collect(w.Pending()))
	require.True(t, w.Settle(0))
	require.Equal(t, int64(49<<50+1), w.Mark())
}
