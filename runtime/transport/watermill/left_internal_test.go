package watermill

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// TestLeftOut: a member reads nothing of a topic until that one's group has let
// it in, nor while the group is shared out anew; a run that ends when idle would
// end with nothing done.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	c := &consumer{cfg: transport.ConsumerConfig{Topics: []string{"orders", "refunds"}}, src: &source{claims: &claims{}}}
	for _, step := range []struct {
		session int
		out     bool
	}{{0, true}, {1, true}, {1, false}, {-1, true}, {1, false}} {
		c.inGroup(step.session)
		why, since := c.LeftOut()
		require.Equal(t, step.out, why != "")
		require.Equal(t, step.out, !since.IsZero())
	}
	c.src.claims = nil // what is not Kafka has no such group
	c.inGroup(-2)
	why, _ := c.LeftOut()
	require.Empty(t, why)
}
