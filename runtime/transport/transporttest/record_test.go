package transporttest

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
			trace = append(trace, "last in, first out")
			tb.Cleanup(func() { trace = append(trace, "added by a clean-up") })
			panic("in a clean-up")
		})
		tb.Errorf("%s goes on", tb.Name())
		require.Equal(tb, 1, 2)
		trace = append(trace, "after FailNow")
	})
	require.Equal(t, []string{"last in, first out", "added by a clean-up", "first in, last out"}, trace)
	require.Len(t, failures, 4)
	require.Equal(t, "case goes on", failures[0])
	require.Contains(t, failures[1], "Not equal")
	require.Contains(t, failures[2], "panic: in a clean-up")
	require.Contains(t, failures[3], "context canceled")
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := Report{
		{Case: "A1_no_loss"},
		{Case: "B5_bytes", Skip: "capability ByteWindow is missing"},
		{Case: "C1_delay", Failed: true, Failures: []string{"\n\tError Trace:\tx.go:1\n\tError:\tNot\n\t\tequal", "more"}},
		{Case: "SPI_off", Failed: true},
	}
	require.Equal(t, "4 cases: 1 passed, 2 failed, 1 skipped\n"+
		"B5_bytes  skipped  capability ByteWindow is missing\n"+
		"C1_delay  FAILED   Not equal\n"+
		"SPI_off   FAILED   see its subtest\n", r.String())
	require.Equal(t, []string{"C1_delay", "SPI_off"}, r.Failed())
	require.Equal(t, map[string]string{"B5_bytes": "capability ByteWindow is missing"}, r.Skipped())
}

func TestHooksAreFields(t *testing.T) {
	t.Parallel()
	r := &rig{o: &Options{Lacks: map[string]string{"Kill": "it is immortal"}}}
	require.Equal(t, "no Kill: it is immortal", hook("Kill").missing(r))
	require.Equal(t, "no hook Restart", hook("Restart").missing(r))
	require.Equal(t, "capability History is missing", history().missing(r))
	r.broker.Restart = func(TB) {}
	require.Empty(t, hook("Restart").missing(r))
	for _, c := range cases() {
		for _, n := range c.needs {
			n.missing(r) // panics if there is no such field
		}
	}
}
