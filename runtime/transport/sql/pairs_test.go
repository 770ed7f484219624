package sql_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// The server's step between two ids may differ from one connection to the
// next, and change: no delivery points at another message.
func TestStepOfIDsChanges(t *testing.T) {
	t.Parallel()
	w := worldOn(t, "mysql")
	tr := w.open(t)
	c, p := consume(t, tr), produce(t, tr)
	for i, step := range []int{1, 3, 2} {
		require.NoError(t, sql.SetStep(t.Context(), tr, step))
		publish(t, p, fmt.Sprint("m", i), 20)
		ds := receive(t, c, 20)
		require.Len(t, ids(ds), 20)
		for _, d := range ds {
			require.Equal(t, "body of "+d.ID, string(d.Payload))
		}
		settle(t, c, transport.Ack, ds...)
	}
	w.eventuallyEmpty(t, "leat_messages")
	require.Zero(t, w.count(t, "leat_deliveries"))
}

// A delivery that names another topic's message is none of it, and removing it
// leaves the message alone: whether it is read forward or looked for again.
func TestDeliveryOfAnotherTopicsMessage(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			strayPairs(t, w.open(t), func(query string) {
				_, err := w.raw.ExecContext(t.Context(), query)
				require.NoError(t, err)
			}, func() int { return w.count(t, "leat_deliveries") })
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t)
		db := b.raw()
		strayPairs(t, b.open(), func(query string) {
			_, err := db.ExecContext(t.Context(), query)
			require.NoError(t, err)
		}, func() int { return b.count("leat_deliveries") })
	})
}

func strayPairs(t *testing.T, tr *sql.Transport, exec func(string), deliveries func() int) {
	t.Helper()
	c, p := consume(t, tr), produce(t, tr)
	other := consume(t, tr, func(cfg *transport.ConsumerConfig) { cfg.Name, cfg.Topics = "other", []string{"invoices"} })
	require.NoError(t, p.Publish(t.Context(), "invoices", msg("first", "", ""), msg("second", "", "")))
	publish(t, p, "m", 1)
	ds := receive(t, c, 1)
	const stray = "INSERT INTO leat_deliveries (topic_id, group_id, part, id) SELECT t.id, g.id, %d, m.id FROM leat_topics t" +
		" JOIN leat_groups g ON g.topic_id = t.id JOIN leat_messages m ON m.topic_id <> t.id WHERE t.name = '" + topicName + "'"
	exec(fmt.Sprintf(stray, (ds[0].Partition+1)%8)) // above the cursor there
	exec(fmt.Sprintf(stray, ds[0].Partition))       // below
	sql.LookBack(c)
	publish(t, p, "n", 1)
	more := receive(t, c, 1)
	require.Equal(t, "n-0", more[0].ID)
	for until := time.Now().Add(waitFor); deliveries() > 4; { // two are held, and two for the other topic
		require.True(t, time.Now().Before(until), "%d deliveries are left", deliveries())
		quiet(t, c, 50*time.Millisecond)
	}
	settle(t, c, transport.Ack, append(ds, more...)...)
	got := receive(t, other, 2)
	require.Equal(t, map[string]int{"first": 1, "second": 1}, ids(got))
	settle(t, other, transport.Ack, got...)
	require.Zero(t, deliveries())
}

// What the byte limit has no room for is not read: neither forward nor when it
// is looked for again.
func TestRowsReadFollowTheByteLimit(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	n := sql.CountRows(tr)
	c, p := consume(t, tr), produce(t, tr)
	const total, size = 400, 10 << 10
	var msgs []*message.Message
	for i := range total {
		msgs = append(msgs, message.NewMessage(fmt.Sprint(i), bytes.Repeat([]byte("x"), size)))
	}
	require.NoError(t, p.Publish(t.Context(), topicName, msgs...))
	drain := func(v transport.Verdict, most int) {
		for got := 0; got < total; {
			ds, err := c.Receive(t.Context(), 1000, 10*(size+100))
			require.NoError(t, err)
			got += len(ds)
			settle(t, c, v, ds...)
		}
		require.Less(t, int(n.Load()), most)
		n.Store(0)
	}
	drain(transport.Ack, 4*total)
	require.NoError(t, p.Publish(t.Context(), topicName, msgs...))
	var all []*transport.Delivery
	for len(all) < total {
		ds, err := c.Receive(t.Context(), 1000, 1<<30)
		require.NoError(t, err)
		all = append(all, ds...)
	}
	settle(t, c, transport.Release, all...)
	n.Store(0)
	drain(transport.Ack, 4*total)
}
