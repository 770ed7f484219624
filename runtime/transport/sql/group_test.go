package sql_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// Many workers make one group at once: it comes once.
func TestGroupDeclaredAtOnce(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			var trs []*sql.Transport
			for range 6 {
				trs = append(trs, w.open(t))
			}
			require.NoError(t, trs[0].Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName}))
			const groups = 5
			for i := range groups {
				var wg sync.WaitGroup
				for _, tr := range trs {
					wg.Go(func() {
						d := transport.Declaration{Topic: topicName, Group: fmt.Sprint("g", i), Start: transport.StartEarliest}
						if err := tr.Declare(t.Context(), transport.TopologyDeclare, d); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			}
			var gen int
			require.NoError(t, w.raw.QueryRowContext(t.Context(), "SELECT gen FROM leat_topics").Scan(&gen))
			require.Equal(t, groups, gen)
		})
	}
}

// Settlements that end at the same time, of a topic with two groups, clean up
// one after the other.
func TestSettlesAtOnce(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			tr := w.open(t)
			c := consume(t, tr)
			other := consume(t, tr, func(cfg *transport.ConsumerConfig) { cfg.Group = "other" })
			publish(t, produce(t, tr), "m", 200)
			ds, others := receive(t, c, 200), receive(t, other, 200)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					for _, of := range []struct {
						c  transport.Consumer
						ds []*transport.Delivery
					}{{c, ds}, {other, others}} {
						for _, d := range of.ds[10*i : 10*i+10] {
							if err := of.c.Settle(t.Context(), []transport.Settlement{{Delivery: d, Verdict: transport.Ack}}); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			wg.Wait()
			w.eventuallyEmpty(t, "leat_messages")
		})
	}
}

// A member whose lease is longer than ours lives as long as that says.
func TestLeasesOfDifferentLengths(t *testing.T) {
	t.Parallel()
	require.False(t, sql.Dead(time.Second, 10*time.Second, 9*time.Second))
	require.False(t, sql.Dead(time.Second, 10*time.Second, 14*time.Second))
	require.True(t, sql.Dead(time.Second, 10*time.Second, 16*time.Second))
	require.False(t, sql.Dead(10*time.Second, time.Second, 14*time.Second))
	require.True(t, sql.Dead(time.Second, 10*time.Hour, 2*time.Minute), "a clock that was set")
}
