package runtime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport/memory"
)

// TestFewInFlightAreToldAtOnce: where the broker gives one message at a time,
// its ack waits for no other to go with it.
func TestFewInFlightAreToldAtOnce(t *testing.T) {
	t.Parallel()
	for few, atOnce := range map[int]bool{0: false, 1: true, 7: true, 64: false} {
		c := memory.Capabilities()
		c.InFlight = few
		inMemory(t, memory.Options{Capabilities: &c}, func(w *world) {
			told := make(chan time.Time, 1)
			defer w.broker.Observe(func(e memory.Event) {
				if e.Kind == memory.Settled {
					told <- time.Now()
				}
			})()
			w.consume(ok, w.policy())
			began := time.Now()
			w.publishKeys(1, 1)
			require.Equal(w, atOnce, (<-told).Equal(began), "%d in flight", few)
		})
	}
}
