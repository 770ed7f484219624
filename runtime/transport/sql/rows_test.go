package sql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// A3: rows inserted by hand, whatever they hold, are delivered and do not stop others.
func TestRowsByHand(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "before", 1)
	db := b.raw()
	for _, values := range []string{
		"NULL, NULL, NULL, NULL, 1",
		"'', '', '', '', 2",
		"'broken', NULL, '{\"a\": ', 'x', 3",
		"'array', NULL, '[1]', 'x', 4",
		"'cut', NULL, x'000561', 'x', 5",
		"'badutf', x'ff', x'7b2261223a22ff227d', x'ff', 6",
		"'typed', 7, '{\"n\": 1.50, \"b\": true, \"o\": {\"x\": [1]}, \"z\": null}', 8, 7",
		"'time', 1.5, NULL, 2.5, 'yesterday'",
	} {
		_, err := db.ExecContext(t.Context(), "INSERT INTO leat_messages (topic_id, part, uuid, key, headers, payload, published_at) SELECT id, 3, "+values+" FROM leat_topics")
		require.NoError(t, err, values)
		_, err = db.ExecContext(t.Context(), "INSERT INTO leat_deliveries SELECT t.id, g.id, 3, last_insert_rowid() FROM leat_topics t, leat_groups g")
		require.NoError(t, err)
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO leat_deliveries SELECT t.id, g.id, 3, 999999 FROM leat_topics t, leat_groups g")
	require.NoError(t, err, "a delivery without a message")
	publish(t, p, "after", 1)

	ds := receive(t, c, 10)
	byID := map[string]*transport.Delivery{}
	for _, d := range ds {
		byID[d.ID] = d
		if d.Payload == nil {
			require.True(t, strings.HasPrefix(d.ID, d.Coordinates()+"@"), d.ID)
			require.Nil(t, d.Headers)
		}
	}
	require.Len(t, byID, 10)
	require.Equal(t, `{"a": `, byID["broken"].Headers.Get("leat_raw_headers"))
	require.Equal(t, "[1]", byID["array"].Headers.Get("leat_raw_headers"))
	require.Equal(t, "\x00\x05a", byID["cut"].Headers.Get("leat_raw_headers"))
	require.Equal(t, map[string]string{"n": "1.50", "b": "true", "o": `{"x": [1]}`, "z": "", transport.KeyHeader: "7"}, byID["typed"].Headers.Map())
	require.Equal(t, "8", string(byID["typed"].Payload))
	require.Equal(t, "\xff", byID["badutf"].Key)
	settle(t, c, transport.Ack, ds...)
	require.Eventually(t, func() bool { return b.count("leat_deliveries") == 0 }, waitFor, tickFor, "the empty delivery is removed")
	require.Zero(t, b.count("leat_messages"))
}
