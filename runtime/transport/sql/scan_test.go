package sql_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

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

// An id just settled is held until the scan under way has returned.
func TestSettledLingersWhileScanning(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c := consume(t, tr)
	publish(t, produce(t, tr), "m", 3)
	ds := receive(t, c, 3)
	settle(t, c, transport.Ack, ds[0])
	require.Equal(t, 2, sql.Held(c), "no scan is under way")
	finish := sql.BeginScan(c)
	settle(t, c, transport.Ack, ds[1])
	require.NoError(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: ds[2], Verdict: transport.Delay, After: time.Hour}}))
	require.Equal(t, 2, sql.Held(c))
	finish()
	require.Zero(t, sql.Held(c))
}

// The same with scans that look back all the time, two groups so that the
// message outlives its delivery, and settlements in between.
func TestNothingTwiceUnderLookingBack(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	consume(t, b.open(), func(c *transport.ConsumerConfig) { c.Group = "other" })
	const n = 4000
	var wg sync.WaitGroup
	settling := make(chan []*transport.Delivery, n)
	wg.Go(func() {
		for range n / 100 {
			publish(t, p, fmt.Sprint(time.Now().UnixNano()), 100)
		}
	})
	wg.Go(func() {
		for ds := range settling {
			settle(t, c, transport.Ack, ds...)
		}
	})
	seen := map[int64]bool{}
	for len(seen) < n {
		sql.LookBack(c)
		ds, err := c.Receive(t.Context(), 50, 1<<20)
		require.NoError(t, err)
		for _, d := range ds {
			require.False(t, seen[d.Offset], "%d came twice", d.Offset)
			seen[d.Offset] = true
		}
		settling <- ds
	}
	close(settling)
	wg.Wait()
	require.Equal(t, n, b.count("leat_messages"))
}

// Partitions of different sizes are read side by side, not each at its own pace.
func TestPartitionsStayTogether(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	const n = 8_000
	var msgs []*message.Message
	for i := range n {
		key := fmt.Sprint("key", i)
		if i%3 == 0 {
			key = "a third of all"
		}
		msgs = append(msgs, msg(fmt.Sprint(i), key, ""))
	}
	require.NoError(t, p.Publish(t.Context(), topicName, msgs...))
	last := map[int32]int64{}
	for left := n; left > n/4; {
		ds, err := c.Receive(t.Context(), 200, 1<<20)
		require.NoError(t, err)
		for _, d := range ds {
			require.Greater(t, d.Offset, last[d.Partition])
			last[d.Partition] = d.Offset
		}
		left -= len(ds)
		settle(t, c, transport.Ack, ds...)
	}
	require.Len(t, last, 8)
	ids := slices.Collect(maps.Values(last))
	require.Less(t, slices.Max(ids)-slices.Min(ids), int64(n/4))
}

// More partitions than fit one statement.
func TestManyTopics(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	var topics []string
	for i := range 20 {
		topics = append(topics, fmt.Sprint("topic-", i))
	}
	c, p := consume(t, tr, func(c *transport.ConsumerConfig) { c.Topics = topics }), produce(t, tr)
	for range 3 {
		for _, tp := range topics {
			require.NoError(t, p.Publish(t.Context(), tp, msg("to "+tp, "", "")))
		}
		ds := receive(t, c, len(topics))
		for _, d := range ds {
			require.Equal(t, "to "+d.Topic, d.ID)
		}
		require.Len(t, ids(ds), len(topics))
		settle(t, c, transport.Release, ds...)
		settle(t, c, transport.Ack, receive(t, c, len(topics))...)
	}
	quiet(t, c, 20*time.Millisecond)
	require.Zero(t, b.count("leat_messages"))
}
