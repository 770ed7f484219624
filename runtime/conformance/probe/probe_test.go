package probe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
)

func TestParse(t *testing.T) {
	t.Parallel()
	want := []probe.Trace{{"start", 12, "m/1", 1}, {"done", 12, "m/1", 2}}
	got, err := probe.Parse(want[0].String() + "\n" + want[1].String() + "\n")
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, bad := range []string{"start 12\n", "start x m 1\n", "\n", "start 12 two words 1\n"} {
		_, err := probe.Parse(bad)
		require.Error(t, err, "%q", bad)
	}
}
