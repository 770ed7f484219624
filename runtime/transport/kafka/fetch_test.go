package kafka_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
)

// TestPartitionsInTurns: a fetch brings one partition where that has enough, and
// yet all are handed out in turns, since more fetches are taken in meanwhile,
// however much records grow when they are unpacked.
func TestPartitionsInTurns(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func([]byte){
		"plain":      func(b []byte) { _, _ = rand.Read(b) },            // never fails; it cannot be compressed
		"compressed": func(b []byte) { _, _ = rand.Read(b[:len(b)/8]) }, // likewise
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions, each, fetches = 4, 4 << 10, 4 // of 1 MiB, for each partition
			w := newWorld(t, brokertest.URL(t, "kafka"), partitions)
			for p := range int32(partitions) {
				rs := make([]*kgo.Record, each)
				for i := range rs {
					rs[i] = &kgo.Record{Topic: w.topic, Partition: p, Value: make([]byte, 1<<10)}
					body(rs[i].Value)
				}
				require.NoError(t, w.raw.ProduceSync(within(t), rs...).FirstErr())
			}
			c := w.join(w.connect(), func(cfg *transport.ConsumerConfig) { cfg.PrefetchBytes = 3 << 20 })
			changes, last := 0, int32(-1)
			for n := 0; n < partitions*each; {
				ds, err := c.Receive(within(t), 128, 1<<20)
				require.NoError(t, err)
				for _, d := range ds {
					if d.Partition != last {
						changes, last = changes+1, d.Partition
					}
				}
				n += len(ds)
				settle(t, c, transport.Ack, ds...)
			}
			t.Logf("%d changes of partition", changes)
			require.Greater(t, changes, 3*partitions*fetches, "one fetch after the other")
		})
	}
}
