package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// TestScriptsOfAnySize: what goes into one transaction is cut into scripts that
// the server takes, in one order: more messages than an INSERT has, one that is
// larger than a script, and more deliveries than messages have bytes.
func TestScriptsOfAnySize(t *testing.T) {
	t.Parallel()
	w := worldOn(t, "mysql")
	tr := w.open(t)
	const groups, few, large = 40, 700, 6 << 20
	for g := range groups {
		require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "many", Group: fmt.Sprint("g", g)}))
	}
	var msgs []*message.Message
	for i := range 2*few + 1 {
		body := fmt.Sprint(i)
		if i == few {
			body = strings.Repeat("'", large)
		}
		m := message.NewMessage(fmt.Sprint(i), []byte(body))
		m.Metadata.Set(transport.KeyHeader, "k")
		msgs = append(msgs, m)
	}
	p := produce(t, tr)
	require.NoError(t, p.Publish(t.Context(), "many", msgs...))
	require.Equal(t, len(msgs), w.count(t, "leat_messages"))
	require.Equal(t, groups*len(msgs), w.count(t, "leat_deliveries"))
	for _, g := range []int{0, groups - 1} {
		c := consume(t, tr, func(cfg *transport.ConsumerConfig) { cfg.Topics, cfg.Group = []string{"many"}, fmt.Sprint("g", g) })
		ds := receive(t, c, few)
		one, err := c.Receive(t.Context(), 1, 2*large)
		require.NoError(t, err)
		ds = append(append(ds, one...), receive(t, c, few)...)
		for i, d := range ds {
			require.Equal(t, msgs[i].UUID, d.ID)
			require.Len(t, d.Payload, len(msgs[i].Payload))
		}
		require.NoError(t, c.Close(t.Context()))
	}
}
