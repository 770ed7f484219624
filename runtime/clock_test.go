package runtime_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// TestOldest: how long an attempt has run is right to a tick of 10 ms, whether
// its worker was idle before or comes from others, quick or slow.
func TestOldest(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{}, func(w *world) {
		takes := map[string]time.Duration{"1": 0, "2": time.Hour, "3": time.Hour, "4": 3 * time.Millisecond, "5": 3 * time.Millisecond, "6": time.Hour}
		began := make(chan string, len(takes))
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			began <- m.UUID
			time.Sleep(takes[m.UUID])
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Timeout, p.Concurrency = 2*time.Hour, 1 }))
		for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
			w.publish("in", msg(id, "k", ""))
		}
		for id := range began {
			if takes[id] == time.Hour {
				time.Sleep(time.Minute)
				require.InDelta(w, time.Minute+5*time.Millisecond, w.router.Status()[0].Oldest, float64(5*time.Millisecond), "message %s", id)
			}
			if id == "6" {
				break
			}
		}
		require.Equal(w, int64(6), w.settled().Count(transport.Handled))
		require.Zero(w, w.router.Status()[0].Oldest)
	})
}
