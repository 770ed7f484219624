package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/runtime/transport"
)

// cutAt has the cluster say that the epoch in which all was written ends there.
func cutAt(c *kfake.Cluster, end int64) {
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.OffsetForLeaderEpochRequest) //nolint:forcetypeassert // by its key
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewOffsetForLeaderEpochResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				sp.Partition, sp.LeaderEpoch, sp.EndOffset = rp.Partition, rp.LeaderEpoch, end
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
}

// TestLogCut: after an unclean election the log may end below what was done
// ahead of the position, which counts no more then, or below the position,
// which goes back to there.
func TestLogCut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  int64
		from int // the first that comes again
		says string
	}{
		"below what is done ahead": {end: 7, from: 5, says: "cut above the position"},
		"below the position":       {end: 3, from: 3, says: "cut below the position"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, c := fake(t, 1)
			tr := w.connect()
			w.put(0, values("m", 10)...)
			first := w.join(tr)
			ds := w.receive(first, 10)
			settle(t, first, transport.Ack, append(ds[:5:5], ds[7:9]...)...)
			require.NoError(t, first.Close(within(t)))
			at, metadata := w.committed(0)
			require.EqualValues(t, 5, at)
			require.NotEmpty(t, metadata)

			cutAt(c, tc.end)
			var log said
			next := w.join(tr, logTo(&log))
			want := values("m", 10)[tc.from:]
			require.Equal(t, want, payloads(w.receive(next, len(want))))
			require.Contains(t, log.String(), tc.says)
			w.quiet(next)
		})
	}
}
