package amqp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport/amqp"
)

func TestAcksOfAPrefixAreOneFrame(t *testing.T) {
	t.Parallel()
	a := amqp.NewAcks(100)
	a.Take(20)
	require.Equal(t, []int64{1}, a.Settle(false, 1))
	require.Equal(t, []int64{-5}, a.Settle(false, 3, 2, 5, 4))
	require.Empty(t, a.Settle(false, 8, 7), "6 may come soon")
	require.Equal(t, []int64{-8}, a.Settle(false, 6))
	require.Equal(t, []int64{10, 12}, a.Settle(true, 10, 12), "9 is stuck")
	require.Equal(t, []int64{-11}, a.Settle(false, 9, 11), "10 is told already; 11 is not")
	require.EqualValues(t, 8, a.Open())
}

func TestAcksBehindAStuckHeadAreToldWhenMany(t *testing.T) {
	t.Parallel()
	a := amqp.NewAcks(8)
	a.Take(8)
	require.Empty(t, a.Settle(false, 3))
	require.Equal(t, []int64{3, 2}, a.Settle(false, 2), "a quarter of the prefetch")
	require.Equal(t, []int64{1}, a.Settle(false, 1))
}

// The broker closes a channel on an ack of what it does not wait for: no tag is
// told twice, and "multiple" names one that is not told. In the end all are.
func TestAcksAgreeWithTheBroker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		prefetch := rapid.IntRange(1, 64).Draw(t, "prefetch")
		a := amqp.NewAcks(prefetch)
		waiting := map[int64]bool{} // as the broker sees it
		var open []uint64
		taken := uint64(0)
		tell := func(frames []int64) {
			for _, f := range frames {
				tag := max(f, -f)
				require.True(t, waiting[tag], "unknown delivery tag %d", tag)
				for w := range waiting {
					if w == tag || f < 0 && w < tag {
						require.NotContains(t, open, uint64(w), "told of what is not settled")
						delete(waiting, w)
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					taken++
					waiting[int64(taken)] = true
					open = append(open, taken)
				}
				a.Take(taken)
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing is open")
				}
				shuffled := rapid.Permutation(open).Draw(t, "order")
				n := rapid.IntRange(1, len(open)).Draw(t, "n")
				open = shuffled[n:]
				tell(a.Settle(rapid.Bool().Draw(t, "all"), shuffled[:n]...))
			},
			"": func(t *rapid.T) { require.EqualValues(t, len(open), a.Open()) },
		})
		rest := open
		open = nil
		tell(a.Settle(true, rest...))
		require.Empty(t, waiting)
	})
}
