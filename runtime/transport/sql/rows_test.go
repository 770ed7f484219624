package sql_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
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

// A row that appears below what was read is found. SQLite commits none late by
// itself; other databases do.
func TestLateRowIsFound(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	sql.LateCommits(tr)
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 1)
	settle(t, c, transport.Ack, receive(t, c, 1)...)
	db := b.raw()
	_, err := db.ExecContext(t.Context(), "INSERT INTO leat_messages (id, topic_id, part, uuid) SELECT 1000, id, 2, 'high' FROM leat_topics")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO leat_deliveries SELECT t.id, g.id, 2, 1000 FROM leat_topics t, leat_groups g")
	require.NoError(t, err)
	high := receive(t, c, 1)
	require.Equal(t, "high", high[0].ID)
	_, err = db.ExecContext(t.Context(), "INSERT INTO leat_messages (id, topic_id, part, uuid) SELECT 500, id, 2, 'late' FROM leat_topics")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO leat_deliveries SELECT t.id, g.id, 2, 500 FROM leat_topics t, leat_groups g")
	require.NoError(t, err)
	late := receive(t, c, 1)
	require.Equal(t, "late", late[0].ID)
	settle(t, c, transport.Ack, append(high, late...)...)
	require.Zero(t, b.count("leat_messages"))
}

func TestDeclare(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	verify := func(ds ...transport.Declaration) error {
		return b.open().Declare(t.Context(), transport.TopologyVerify, ds...)
	}
	require.ErrorContains(t, verify(), "does not exist")
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "a", Group: "g"}))
	require.NoError(t, verify(transport.Declaration{Topic: "a", Group: "g"}))
	err := verify(transport.Declaration{Topic: "a", Group: "h"}, transport.Declaration{Topic: "b", Group: "g"})
	require.ErrorContains(t, err, `group "h" of topic "a" does not exist`)
	require.ErrorContains(t, err, `topic "b" does not exist`)
	require.True(t, transport.Refused(err))

	other := b.open(func(o *sql.Options) { o.Partitions = 3 })
	err = other.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "a"})
	require.ErrorContains(t, err, `topic "a" has 8 partitions and the configuration asks for 3`)
	require.True(t, transport.Refused(err))
	require.NoError(t, other.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "c", Group: "g"}))
	require.Equal(t, 11, b.count("leat_partitions"))

	require.True(t, transport.Refused(tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "a b"})))
	checked := b.open()
	require.NoError(t, checked.Declare(t.Context(), transport.TopologyVerify))
	p := produce(t, checked)
	err = p.Publish(t.Context(), "nowhere", msg("1", "", ""))
	require.ErrorContains(t, err, `topic "nowhere" does not exist`)
	require.NoError(t, p.Publish(t.Context(), "a", msg("1", "", "")))
	_, err = checked.OpenConsumer(t.Context(), config(func(c *transport.ConsumerConfig) { c.Topology = transport.TopologyOff }))
	require.ErrorContains(t, err, "create it with topology: declare")
	require.True(t, transport.Refused(err))
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o, err := sql.ParseSQLite("sqlite://a%20b/worker.db?synchronous=full")
	require.NoError(t, err)
	require.Equal(t, sql.Options{Path: "a b/worker.db", Synchronous: "full"}, o)
	o, err = sql.ParseSQLite("sqlite:///var/worker.db")
	require.NoError(t, err)
	require.Equal(t, "/var/worker.db", o.Path)
	for _, bad := range []string{"mysql://x", "sqlite://%zz", "sqlite://x?mode=memory"} {
		_, err = sql.ParseSQLite(bad)
		require.Error(t, err, bad)
	}
	_, err = sql.OpenSQLite(sql.Options{Path: "x", Partitions: -1, Lease: 1})
	require.ErrorContains(t, err, "partitions is -1")
	require.ErrorContains(t, err, "lease is 1ns")

	dir := t.TempDir()
	for _, bad := range []sql.Options{{}, {Path: filepath.Join(dir, "no", "x.db")}, {Path: dir}, {Path: ":memory:"}} {
		tr, err := sql.OpenSQLite(bad)
		require.NoError(t, err)
		_, err = tr.OpenProducer(t.Context())
		require.True(t, transport.Refused(err), "%v", err)
		require.NoError(t, tr.Close(t.Context()))
	}
	tr, err := sql.OpenSQLite(sql.Options{Path: filepath.Join(dir, "x.db")})
	require.NoError(t, err)
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare))
	require.FileExists(t, filepath.Join(dir, "x.db"))
	require.NoError(t, tr.Close(t.Context()))
	_, err = tr.OpenProducer(t.Context())
	require.ErrorIs(t, err, transport.ErrClosed)
}
