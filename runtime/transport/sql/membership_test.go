package sql_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

func forAnHour(o *sql.Options) { o.Lease = time.Hour }

// lost is a consumer that holds 10 messages, has lost the database and is closed.
func lost(t *testing.T, tr *sql.Transport) []*transport.Delivery {
	t.Helper()
	c := consume(t, tr)
	held := receive(t, c, 10)
	sql.Lose(c)
	_, err := c.Receive(t.Context(), 1, 1<<20)
	require.ErrorContains(t, err, "lost")
	require.NoError(t, c.Close(t.Context()))
	require.True(t, held[0].Assignment.Revoked())
	return held
}

// What a consumer held that has lost the database comes to nobody else, since
// its handlers may still run; it comes again when it is opened again.
func TestLostConsumerKeepsItsLeases(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t)
		keepsItsLeases(t, b.open(forAnHour), b.elsewhere(forAnHour))
		require.Zero(t, b.count("leat_messages"))
	})
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			long := func(o *sql.ServerOptions) { o.Lease = time.Hour }
			keepsItsLeases(t, w.open(t, long), w.open(t, long))
			require.Zero(t, w.count(t, "leat_messages"))
		})
	}
}

func keepsItsLeases(t *testing.T, tr, elsewhere *sql.Transport) {
	t.Helper()
	publish(t, produce(t, tr), "m", 10)
	held := lost(t, tr)
	other, err := elsewhere.OpenConsumer(t.Context(), config())
	require.NoError(t, err)
	quiet(t, other, lease)
	require.NoError(t, other.Close(t.Context()))
	again := consume(t, tr)
	ds := receive(t, again, 10)
	require.Equal(t, ids(held), ids(ds))
	settle(t, again, transport.Ack, ds...)
}

// One that is closed twice takes nothing from the one that came after it.
func TestLostConsumerIsClosedTwice(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(forAnHour)
	publish(t, produce(t, tr), "m", 10)
	old := consume(t, tr)
	receive(t, old, 10)
	sql.Lose(old)
	require.NoError(t, old.Close(t.Context()))
	again := consume(t, tr)
	ds := receive(t, again, 10)
	require.NoError(t, old.Close(t.Context()))
	settle(t, again, transport.Ack, ds...)
	require.Zero(t, b.count("leat_messages"))
}

// A transport that is closed gives back what nobody came back for.
func TestClosingGivesUpWhatWasLost(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr, err := sql.OpenSQLite(sql.Options{Path: b.path, Lease: time.Hour})
	require.NoError(t, err)
	publish(t, produce(t, b.open(forAnHour)), "m", 10)
	held := lost(t, tr)
	require.NoError(t, tr.Close(t.Context()))
	require.Equal(t, ids(held), ids(receive(t, consume(t, b.open(forAnHour)), 10)))
}

// Nor is one in the way of others for longer than its lease.
func TestLostConsumerIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	publish(t, produce(t, tr), "m", 10)
	held := lost(t, tr)
	require.Equal(t, ids(held), ids(receive(t, consume(t, b.elsewhere(briefly)), 10)))
}
