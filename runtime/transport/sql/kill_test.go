package sql_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// killsSoak has many more kills where it is set.
const killsSoak = "LEAT_SOAK"

// C2, S2: publishers and workers killed at random moments lose nothing that
// was confirmed, and what is handled twice was in flight at a kill.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	kills := 60
	if os.Getenv(killsSoak) != "" {
		kills = 500
	}
	b := newBroker(t)
	require.NoError(t, b.open().Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName}))
	procs := b.start("publish", "handle named", "handle")
	for range kills {
		some := len(b.log(handledLog)) + 1 + rand.IntN(100)
		require.Eventually(t, func() bool { return len(b.log(handledLog)) >= some }, waitFor, tickFor)
		p := procs[rand.IntN(len(procs))]
		p.kill()
		p.start()
		if rand.IntN(kills) < 3 {
			b.sound(b.path)
		}
	}
	procs[0].kill()
	require.Eventually(t, func() bool { return b.count("leat_deliveries") == 0 }, waitFor, 50*time.Millisecond)
	for _, p := range procs[1:] {
		p.kill()
	}
	handled, intended := b.log(handledLog), b.log(intendedLog)
	for id := range b.log(confirmedLog) {
		require.NotZero(t, handled[id], "%s was confirmed, and is lost", id)
	}
	twice := 0
	for id, times := range handled {
		require.NotZero(t, intended[id], "%s was handled, and nobody published it", id)
		twice += times - 1
	}
	require.LessOrEqual(t, twice, kills*procWindow)
	require.Zero(t, b.count("leat_messages"))
	b.sound(b.path)
}

// S4: a worker that was stopped for longer than its lease skips nothing when
// it goes on, and what it handles late was in its hands.
func TestPausedWorker(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := produce(t, b.open())
	require.NoError(t, b.open().Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName}))
	procs := b.start("handle", "handle")
	const pauses, each = 3, 400
	n := 0
	for i := range pauses {
		publish(t, p, fmt.Sprint("before", i), each)
		require.Eventually(t, func() bool { return len(b.log(handledLog)) > n+each/4 }, waitFor, tickFor)
		procs[i%2].pause()
		publish(t, p, fmt.Sprint("meanwhile", i), each)
		n += 2 * each
		require.Eventually(t, func() bool { return len(b.log(handledLog)) >= n }, waitFor, tickFor, "the other takes over all of it")
		procs[i%2].resume()
	}
	publish(t, p, "after", each)
	n += each
	require.Eventually(t, func() bool { return b.count("leat_deliveries") == 0 }, waitFor, 50*time.Millisecond)
	for _, p := range procs {
		p.kill()
	}
	twice := 0
	handled := b.log(handledLog)
	for _, times := range handled {
		twice += times - 1
	}
	require.Len(t, handled, n)
	require.LessOrEqual(t, twice, pauses*procWindow)
	b.sound(b.path)
}
