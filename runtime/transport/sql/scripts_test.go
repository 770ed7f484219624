package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
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

// TestScriptsFitThePacket: no script is longer than the server takes, also when
// all is escaped to twice its size, and when the limit has become lower.
func TestScriptsFitThePacket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "mysql", brokertest.Start(t, "mariadb").URL("mariadb"))
	tr := w.open(t)
	p := produce(t, tr)
	all := 0
	for _, of := range []struct{ packet, n, size, groups int }{
		{16 << 20, 1, 1, 0},
		{4 << 20, 1000, 2786, 0},
		{4 << 20, 1000, 2616, 1},
		{1 << 20, 1000, 689, 0},
		{1 << 20, 1000, 519, 1},
		{1 << 20, 20_000, 1, 0},
		{1 << 20, 3, 340 << 10, 2},
		{1 << 20, 2, 900 << 10, 1},
	} {
		w.do(t, fmt.Sprint("SET GLOBAL max_allowed_packet = ", of.packet))
		w.disconnect(t)
		topic := fmt.Sprint("t", all)
		for g := range of.groups {
			require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: fmt.Sprint("g", g)}))
		}
		for _, to := range []string{topic, "again"} { // the latter is known from when the limit was another
			msgs := make([]*message.Message, of.n)
			for i := range msgs {
				msgs[i] = message.NewMessage(fmt.Sprint(i), []byte(strings.Repeat("\"", of.size)))
			}
			require.NoError(t, p.Publish(t.Context(), to, msgs...), "%+v", of)
			all += of.n
		}
	}
	require.Equal(t, all, w.count(t, "leat_messages"))
}
