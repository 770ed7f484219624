package sql_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// D7: while leases and waits run the clock is set by an hour, either way. No
// lease ends early, no wait is cut short or drawn out, and nothing is lost.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			require.NoError(t, b.open().Declare(t.Context(), transport.TopologyDeclare))
			db := b.raw()
			_, err := db.ExecContext(t.Context(), "CREATE TABLE test_clock AS SELECT 0 AS shift")
			require.NoError(t, err)
			open := func() transport.Consumer {
				tr := b.open(briefly)
				sql.ShiftClock(tr)
				return consume(t, tr)
			}
			members := []transport.Consumer{open()}
			publish(t, produce(t, b.open()), "m", 80)
			held := receive(t, members[0], 80)
			members = append(members, open())
			var leaving []*transport.Delivery
			require.Eventually(t, func() bool {
				leaving = nil
				for _, d := range held {
					if d.Assignment.Leaving() {
						leaving = append(leaving, d)
					}
				}
				return len(leaving) > 20
			}, waitFor, tickFor)
			settle(t, members[0], transport.Release, leaving...)
			others := receive(t, members[1], len(leaving))
			kept := held[:0]
			for _, d := range held {
				if !d.Assignment.Leaving() {
					kept = append(kept, d)
				}
			}

			const wait = 2 * lease
			began := time.Now()
			soon, late := kept[0], kept[1]
			require.NoError(t, members[0].Settle(t.Context(), []transport.Settlement{
				{Delivery: soon, Verdict: transport.Delay, After: wait, Attempts: 1},
				{Delivery: late, Verdict: transport.Delay, After: 30 * time.Minute, Attempts: 1},
			}))
			_, err = db.ExecContext(t.Context(), "UPDATE test_clock SET shift = ?", by.Microseconds())
			require.NoError(t, err)
			again := receive(t, members[0], 1)
			require.Equal(t, soon.ID, again[0].ID)
			require.GreaterOrEqual(t, time.Since(began), wait-5*time.Millisecond)
			require.Equal(t, 1, again[0].Attempts)
			quiet(t, members[0], 2*lease)
			quiet(t, members[1], 2*lease)
			for _, d := range append(kept[2:], others...) {
				require.NoError(t, context.Cause(d.Assignment.Context()), "a lease ended early")
			}
			// Of the time after the clock was set.
			require.NoError(t, members[0].Settle(t.Context(), []transport.Settlement{{Delivery: again[0], Verdict: transport.Delay, After: lease, Attempts: 2}}))
			began = time.Now()
			again = receive(t, members[0], 1)
			require.GreaterOrEqual(t, time.Since(began), lease-5*time.Millisecond)
			settle(t, members[0], transport.Ack, append(kept[2:], again...)...)
			settle(t, members[1], transport.Ack, others...)
			require.Equal(t, 1, b.count("leat_delayed"))
			require.Equal(t, 1, b.count("leat_messages"))
		})
	}
}
