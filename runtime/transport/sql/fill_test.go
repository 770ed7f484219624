package sql_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// A group that comes late gets all of a backlog, in order and before what is
// published meanwhile; and others go on publishing.
func TestLateGroup(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	consume(t, tr, func(c *transport.ConsumerConfig) { c.Group = "first" })
	p := produce(t, tr)
	const n = 9000
	for i := range n / 1000 {
		publish(t, p, fmt.Sprint("before", i), 1000)
	}
	declare, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		if err := tr.Declare(declare, transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName}); err != nil {
			t.Error(err)
		}
	})
	meanwhile := 0
	for declare.Err() == nil {
		publish(t, p, fmt.Sprint("meanwhile", meanwhile), 1)
		meanwhile++
	}
	wg.Wait()
	require.Greater(t, meanwhile, 1)
	c := consume(t, tr)
	last := map[int32]int64{}
	some := receive(t, c, n/2)
	settle(t, c, transport.Ack, some...)
	all := slices.Concat(some, receive(t, c, n-n/2+1))
	require.Len(t, ids(all), n+1)
	for _, d := range all {
		require.Greater(t, d.Offset, last[d.Partition])
		last[d.Partition] = d.Offset
	}
}

// Nobody reads for a group that is not complete, and whoever declares it next
// completes it.
func TestFillGoesOn(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	d := transport.Declaration{Topic: topicName, Group: groupName}
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, d))
	p := produce(t, tr)
	publish(t, p, "before", 3000)
	db := b.raw()
	for _, query := range []string{
		"UPDATE leat_groups SET fill_from = 2000, fill_to = 3000",
		"DELETE FROM leat_deliveries WHERE id > 2000",
	} {
		_, err := db.ExecContext(t.Context(), query)
		require.NoError(t, err)
	}
	publish(t, p, "after", 1)
	for _, mode := range []transport.Topology{transport.TopologyOff, transport.TopologyVerify} {
		_, err := tr.OpenConsumer(t.Context(), config(func(c *transport.ConsumerConfig) { c.Topology = mode }))
		require.ErrorContains(t, err, `group "charge" is still being given what is older than it`)
		require.False(t, transport.Refused(err))
	}
	d.Start = transport.StartLatest
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, d))
	require.Equal(t, 3001, b.count("leat_deliveries"))
	require.Len(t, ids(receive(t, consume(t, tr), 3001)), 3001)
}
