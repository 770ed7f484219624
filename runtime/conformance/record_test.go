package conformance

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	var trace []string
	var dir string
	failures := record(t.Context(), "case", func(tb TB) {
		dir = tb.TempDir()
		require.DirExists(tb, dir)
		tb.Cleanup(func() {
			trace = append(trace, "first in, last out")
			require.NoError(tb, tb.Context().Err())
		})
		tb.Cleanup(func() {
			tb.Cleanup(func() { trace = append(trace, "added by a clean-up") })
			panic("in a clean-up")
		})
		tb.Errorf("%s goes on", tb.Name())
		require.Equal(tb, 1, 2)
		trace = append(trace, "after FailNow")
	})
	require.Equal(t, []string{"added by a clean-up", "first in, last out"}, trace)
	require.Len(t, failures, 4)
	require.Equal(t, "case goes on", failures[0])
	require.Contains(t, failures[1], "Not equal")
	require.Contains(t, failures[2], "panic: in a clean-up")
	require.Contains(t, failures[3], "context canceled")
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
