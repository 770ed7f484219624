package dir

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// TestSpans holds ranges against a set, and them to be as few as can be.
func TestSpans(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var s spans
		set := map[int64]bool{}
		for range 60 {
			from := rnd.Int64N(100)
			to := from + rnd.Int64N(4)
			s.add(from, to)
			for o := from; o < to; o++ {
				set[o] = true
			}
			require.EqualValues(t, len(set), s.count())
			for i := range s {
				require.Less(t, s[i][0], s[i][1])
				require.True(t, i == 0 || s[i-1][1] < s[i][0], "%v", s)
			}
			for o := range int64(105) {
				want := o
				for set[want] {
					want++
				}
				require.Equal(t, want, s.next(o), "after %d in %v", o, s)
			}
		}
	}
}

// TestSettleThatCannotBeWritten: the same batch, told again, is written.
func TestSettleThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	tr := New(Options{Path: t.TempDir(), Partitions: 1, Poll: time.Millisecond})
	tp, err := tr.makeTopic("orders")
	require.NoError(t, err)
	require.NoError(t, tp.makeGroup("charge", transport.StartEarliest))
	require.NoError(t, tp.add(t.Context(), 0, []int{0, 1}, func(int) []byte { return []byte("x") }))
	open := func() transport.Consumer {
		c, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{
			Topics: []string{"orders"}, Group: "charge", Topology: transport.TopologyOff, Base: t.Context(),
		})
		require.NoError(t, err)
		return c
	}
	c := open()
	ds, err := c.Receive(t.Context(), 1, 1<<20)
	require.NoError(t, err)
	state := statePath(filepath.Join(tp.dir, "groups", "charge"), 0)
	require.NoError(t, os.Mkdir(state+"~", 0o700)) // where the file is written first
	batch := []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}}
	require.Error(t, c.Settle(t.Context(), batch))
	require.NoError(t, os.Remove(state+"~"))
	require.NoError(t, c.Settle(t.Context(), batch))
	kill(t, c, transport.ConsumerConfig{})

	c = open()
	ds, err = c.Receive(t.Context(), 10, 1<<20)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.EqualValues(t, 1, ds[0].Offset)
	require.NoError(t, c.Close(t.Context()))
}
