package transport_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, legal := range []string{"a", "orders.placed", "A_b-9", "...", "-", strings.Repeat("x", transport.MaxName)} {
		require.NoError(t, transport.CheckName("topic", legal), legal)
	}
	for _, illegal := range []string{"", ".", "..", "a b", "a/b", "a:b", "é", "a\n", "a\x00", strings.Repeat("x", transport.MaxName+1), strings.Repeat("é", transport.MaxName)} {
		require.ErrorContains(t, transport.CheckName("topic", illegal), "topic name", illegal)
	}
}

func TestDeadTopic(t *testing.T) {
	t.Parallel()
	name, err := transport.DeadTopic(transport.DefaultDeadTopic, "orders", "payments.charge")
	require.NoError(t, err)
	require.Equal(t, "orders--payments.charge--dead", name)

	name, err = transport.DeadTopic("parking", "a--b", "-c")
	require.NoError(t, err, "nothing is derived")
	require.Equal(t, "parking", name)

	for _, pair := range [][2]string{{"a--b", "c"}, {"a", "b--c"}, {"a-", "b"}, {"a", "-b"}} {
		_, err := transport.DeadTopic(transport.DefaultDeadTopic, pair[0], pair[1])
		require.ErrorContains(t, err, "ambiguous", pair)
	}
	_, err = transport.DeadTopic(transport.DefaultDeadTopic, strings.Repeat("x", 200), strings.Repeat("y", 200))
	require.ErrorContains(t, err, "at most 249")
}

// TestDeadTopicsDoNotMeet draws from few letters, so that names that could be
// cut at two places are common.
func TestDeadTopicsDoNotMeet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[a-]{1,4}`)
		type pair struct{ topic, group string }
		seen := map[string]pair{}
		for range 50 {
			p := pair{part.Draw(t, "topic"), part.Draw(t, "group")}
			name, err := transport.DeadTopic(transport.DefaultDeadTopic, p.topic, p.group)
			if err != nil {
				continue
			}
			if other, ok := seen[name]; ok {
				require.Equal(t, other, p, name)
			}
			seen[name] = p
		}
	})
}
