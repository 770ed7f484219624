package sql_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

func TestReleaseComesAgainInOrder(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	for _, id := range []string{"a", "b", "c", "d"} {
		require.NoError(t, p.Publish(t.Context(), topicName, msg(id, "key", "")))
	}
	ds := receive(t, c, 3)
	settle(t, c, transport.Release, ds[2], ds[0])
	again := receive(t, c, 3)
	require.Equal(t, []string{"a", "c", "d"}, []string{again[0].ID, again[1].ID, again[2].ID})
	require.Zero(t, again[0].Attempts)
	settle(t, c, transport.Ack, append(again, ds[1])...)
	require.Zero(t, b.count("leat_messages"))
}

func TestDelay(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 3)
	ds := receive(t, c, 3)
	failed := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	const wait = 300 * time.Millisecond
	began := time.Now()
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{
		{Delivery: ds[0], Verdict: transport.Delay, After: wait, Attempts: 2, FirstFailure: failed, LastError: "TimeoutError"},
		{Delivery: ds[1], Verdict: transport.Ack},
		{Delivery: ds[2], Verdict: transport.Delay, After: time.Hour, Attempts: 1},
	}))
	d, err := tr.Depth(t.Context(), topicName, groupName)
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Delayed)
	require.Zero(t, d.Ready)
	require.False(t, d.Oldest.IsZero())

	again := receive(t, c, 1)[0]
	require.GreaterOrEqual(t, time.Since(began), wait-2*time.Millisecond) // the database's clock has milliseconds
	require.Equal(t, ds[0].ID, again.ID)
	require.Equal(t, ds[0].Coordinates(), again.Coordinates())
	require.Equal(t, 2, again.Attempts)
	require.Equal(t, "TimeoutError", again.LastError)
	require.True(t, failed.Equal(again.FirstFailure))
	require.False(t, again.NotBefore.After(time.Now()))
	settle(t, c, transport.Ack, again)
	require.Equal(t, 1, b.count("leat_attempts"))
	require.Equal(t, 1, b.count("leat_messages"))
}

// What was recorded is known to the next owner, and waits there as it did here.
func TestRecordSurvives(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 4)
	ds := receive(t, c, 4)
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{
		{Delivery: ds[0], Verdict: transport.Record, After: time.Hour, Attempts: 3, LastError: "E"},
		{Delivery: ds[1], Verdict: transport.Record, After: time.Hour, Attempts: 1},
		{Delivery: ds[2], Verdict: transport.Delay, After: time.Millisecond, Attempts: 7},
	}))
	quietlyWait := receive(t, c, 1)
	require.Equal(t, 7, quietlyWait[0].Attempts)
	settle(t, c, transport.Ack, ds[1])
	d, err := tr.Depth(t.Context(), topicName, groupName)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Delayed)
	require.EqualValues(t, 2, d.Ready)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, context.Cause(ds[0].Assignment.Context()), transport.ErrRevoked)

	next := consume(t, b.open())
	byID := map[string]*transport.Delivery{}
	for _, d := range receive(t, next, 3) {
		byID[d.ID] = d
	}
	head := byID[ds[0].ID]
	require.Equal(t, 3, head.Attempts)
	require.Equal(t, "E", head.LastError)
	require.WithinDuration(t, time.Now().Add(time.Hour), head.NotBefore, time.Minute)
	require.Equal(t, 7, byID[ds[2].ID].Attempts)
	require.Zero(t, byID[ds[3].ID].Attempts)
	settle(t, next, transport.Ack, byID[ds[0].ID], byID[ds[2].ID], byID[ds[3].ID])
	require.Zero(t, b.count("leat_attempts"))
}

func TestDelayedRowsOutliveTheirOwner(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 1)
	d := receive(t, c, 1)[0]
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: d, Verdict: transport.Delay, After: 100 * time.Millisecond, Attempts: 5}}))
	require.NoError(t, c.Close(t.Context()))
	again := receive(t, consume(t, b.open()), 1)[0]
	require.Equal(t, 5, again.Attempts)
	require.Equal(t, d.ID, again.ID)
}

// C3: exactly what is not acked comes again after a close.
func TestCloseGivesBack(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	p := produce(t, tr)
	publish(t, p, "m", 20)
	first, err := tr.OpenConsumer(t.Context(), config())
	require.NoError(t, err)
	ds := receive(t, first, 20)
	settle(t, first, transport.Ack, ds[:7]...)
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, first.Settle(t.Context(), []transport.Settlement{{Delivery: ds[8], Verdict: transport.Ack}}), "too late, and changes nothing")
	_, err = first.Receive(t.Context(), 1, 1000)
	require.ErrorIs(t, err, transport.ErrClosed)

	began := time.Now()
	again := receive(t, consume(t, tr), 13)
	require.Less(t, time.Since(began), 10*time.Second)
	got := ids(again)
	for i, d := range ds {
		require.Equal(t, i >= 7, got[d.ID] == 1, d.ID)
	}
}

func TestDeadLetterTopicKeeps(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(func(o *sql.Options) { o.Retention = time.Millisecond })
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare,
		transport.Declaration{Topic: "dead", DeadLetter: true}, transport.Declaration{Topic: "plain"}))
	p := produce(t, tr)
	require.NoError(t, p.Publish(t.Context(), "dead", msg("d", "", "")))
	require.NoError(t, p.Publish(t.Context(), "plain", msg("p", "", "")))
	require.NoError(t, sql.Sweep(t.Context(), tr))
	require.Eventually(t, func() bool {
		require.NoError(t, sql.Sweep(t.Context(), tr))
		return b.count("leat_messages") == 1
	}, 10*time.Second, 5*time.Millisecond)
	c := consume(t, tr, func(c *transport.ConsumerConfig) { c.Topics = []string{"dead"} })
	require.Equal(t, "d", receive(t, c, 1)[0].ID)
}

// What a group still waits for is not swept, whether ready or delayed.
func TestSweepLeavesWhatIsWanted(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(func(o *sql.Options) { o.Retention = time.Microsecond })
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 2)
	ds := receive(t, c, 2)
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: ds[0], Verdict: transport.Delay, After: time.Hour}}))
	_, err := b.raw().ExecContext(t.Context(), "UPDATE leat_messages SET published_at = 0")
	require.NoError(t, err)
	require.NoError(t, sql.Sweep(t.Context(), tr))
	require.Equal(t, 2, b.count("leat_messages"))
	_, err = b.raw().ExecContext(t.Context(), "DELETE FROM leat_deliveries")
	require.NoError(t, err)
	require.NoError(t, sql.Sweep(t.Context(), tr))
	require.Equal(t, 1, b.count("leat_messages"), "the orphan goes")
}

// What is settled twice in one batch is settled as it was first. A record may
// be followed by more.
func TestSettledTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 4)
	ds := receive(t, c, 4)
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{
		{Delivery: ds[0], Verdict: transport.Ack},
		{Delivery: ds[0], Verdict: transport.Delay, After: time.Hour, Attempts: 1},
		{Delivery: ds[1], Verdict: transport.Delay, After: time.Hour, Attempts: 1},
		{Delivery: ds[1], Verdict: transport.Ack},
		{Delivery: ds[2], Verdict: transport.Record, Attempts: 1},
		{Delivery: ds[2], Verdict: transport.Ack},
		{Delivery: ds[3], Verdict: transport.Release},
		{Delivery: ds[3], Verdict: transport.Ack},
	}))
	require.Equal(t, 1, b.count("leat_delayed"))
	require.Equal(t, 1, b.count("leat_attempts"))
	require.Equal(t, 2, b.count("leat_messages"))
	again := receive(t, c, 1)
	require.Equal(t, ds[3].ID, again[0].ID)
	settle(t, c, transport.Ack, again...)
}
