package sql_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

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
	require.ErrorContains(t, err, `topology: verify: group "h" of topic "a" does not exist; topic "b" does not exist: start one worker once with topology: declare`)
	require.NotContains(t, err.Error(), "\n")
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
		p, err := tr.OpenProducer(t.Context())
		require.NoError(t, err)
		err = p.Publish(t.Context(), topicName, msg("a", "", ""))
		require.True(t, transport.Refused(err), "%v", err)
		require.NoError(t, p.Close(t.Context()))
		err = tr.Declare(t.Context(), transport.TopologyDeclare)
		require.True(t, transport.Refused(err), "%v", err)
		require.NoError(t, tr.Close(t.Context()))
	}
	tr, err := sql.OpenSQLite(sql.Options{Path: filepath.Join(dir, "x.db")})
	require.NoError(t, err)
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare))
	require.FileExists(t, filepath.Join(dir, "x.db"))
	require.NoError(t, tr.Close(t.Context()))
	require.ErrorIs(t, tr.Declare(t.Context(), transport.TopologyDeclare), transport.ErrClosed)
}
