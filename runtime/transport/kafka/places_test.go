package kafka_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
)

// leaderless has the cluster answer for a partition as one without a leader
// does, and for the others with these ends.
func leaderless(c *kfake.Cluster, part int32, ends func(part int32) int64) (heal func()) {
	var healed atomic.Bool
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if healed.Load() {
			return nil, nil, false
		}
		req := r.(*kmsg.ListOffsetsRequest) //nolint:forcetypeassert // by its key
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewListOffsetsResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewListOffsetsResponseTopicPartition()
				sp.Partition = rp.Partition
				switch {
				case rp.Partition == part:
					sp.ErrorCode = kerr.LeaderNotAvailable.Code
				case rp.Timestamp == -2:
					sp.Offset = 0
				default:
					sp.Offset = ends(rp.Partition)
				}
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	return func() { healed.Store(true) }
}

// TestPartitionWithoutLeader: it holds up none of the others, and with a
// position it needs no more than that.
func TestPartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	t.Run("with a position", func(t *testing.T) {
		t.Parallel()
		w, cluster := fake(t, 3)
		for p := range int32(3) {
			w.put(p, "old")
		}
		c := w.join(w.connect())
		settle(t, c, transport.Ack, w.receive(c, 3)...)
		require.NoError(t, c.Close(within(t)))
		leaderless(cluster, 1, func(int32) int64 { return 2 })
		w.put(0, "a")
		w.put(1, "b")
		w.put(2, "c")
		require.ElementsMatch(t, []string{"a", "b", "c"}, payloads(w.receive(w.join(w.connect()), 3)))
	})
	for _, start := range []transport.Start{transport.StartEarliest, transport.StartLatest} {
		t.Run("without one, "+string(start), func(t *testing.T) {
			t.Parallel()
			w, cluster := fake(t, 3)
			heal := leaderless(cluster, 1, func(int32) int64 { return 0 })
			tr := w.connect()
			var log said
			begin := func(c *transport.ConsumerConfig) { c.Start = start }
			c := w.join(tr, begin, logTo(&log))
			w.put(0, "a")
			w.put(2, "c")
			require.ElementsMatch(t, []string{"a", "c"}, payloads(w.receive(c, 2)))
			require.Contains(t, log.String(), "partitions without a position have no leader")
			require.Contains(t, leftOut(c), w.topic+`": partitions [1] have no leader`)
			heal()
			_, err := c.Receive(within(t), 10, 1<<20)
			require.ErrorContains(t, err, "partition 1 of topic")
			require.ErrorContains(t, err, "has a leader again")
			require.False(t, transport.Refused(err), "it is opened again")
			require.NoError(t, c.Close(within(t)))
			c = w.join(tr, begin)
			require.Empty(t, leftOut(c))
			w.put(1, "b")
			require.ElementsMatch(t, []string{"a", "b", "c"}, payloads(w.receive(c, 3)))
		})
	}
}

// leftOut is what a consumer says that it cannot read.
func leftOut(c transport.Consumer) string {
	why, _ := c.(transport.Partial).LeftOut() //nolint:forcetypeassert // it is ours
	return why
}

// TestPartitionWithoutLeaderMoves: whoever owns it says that it is not read,
// and nobody else.
func TestPartitionWithoutLeaderMoves(t *testing.T) {
	t.Parallel()
	w, cluster := fake(t, 3)
	w.o.Balancers = []string{"range"} // in the order of the members' names
	leaderless(cluster, 1, func(int32) int64 { return 0 })
	var members []transport.Consumer
	says := func() (out []bool) {
		for _, c := range members {
			out = append(out, leftOut(c) != "")
		}
		return out
	}
	for _, step := range []struct {
		joins string
		says  []bool
	}{{"c", []bool{true}}, {"a", []bool{false, true}}, {"b", []bool{false, false, true}}} {
		members = append(members, w.join(w.connect(), func(c *transport.ConsumerConfig) {
			c.Instance = transport.Instance{ID: step.joins, Set: true}
		}))
		eventually(t, "its owner says so when there is "+step.joins, func() bool { return slices.Equal(step.says, says()) })
	}
}

// TestLostGroupIsTold: a member that goes on losing the group says so once, and
// then ends, so that its trouble shows.
func TestLostGroupIsTold(t *testing.T) {
	t.Parallel()
	w, cluster := fake(t, 1)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.OffsetCommitRequest) //nolint:forcetypeassert // by its key
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewOffsetCommitResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewOffsetCommitResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.UnknownTopicOrPartition.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	var log said
	c, err := w.connect().OpenConsumer(within(t), transport.ConsumerConfig{
		Topics: []string{w.topic}, Group: w.group, Start: transport.StartLatest, Topology: transport.TopologyOff,
		Prefetch: 1, PrefetchBytes: 1, Base: context.Background(), Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err == nil {
		t.Cleanup(func() { _ = c.Close(within(t)) })
		_, err = c.Receive(within(t), 1, 1<<20)
		require.Contains(t, log.String(), "the member has lost its partitions")
	}
	require.ErrorContains(t, err, "UNKNOWN_TOPIC_OR_PARTITION")
}

// TestStartLatestOfATopicThatIsAdded: of members that come at once to a topic
// in which their group has no position none takes its partitions for later ones.
func TestStartLatestOfATopicThatIsAdded(t *testing.T) {
	t.Parallel()
	latest := func(c *transport.ConsumerConfig) {
		c.Start, c.Topology = transport.StartLatest, transport.TopologyOff
	}
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		each(t, 8, func(w *world) {
			t := w.t
			for p := range int32(8) {
				w.put(p, values("old", 10)...)
			}
			ctx, stop := context.WithCancel(context.Background())
			var got sync.Map
			var members sync.WaitGroup
			defer func() { stop(); members.Wait() }()
			for range 4 {
				tr := w.connect()
				members.Go(func() {
					cfg := transport.ConsumerConfig{Topics: []string{w.topic}, Group: w.group, Prefetch: 100, PrefetchBytes: 1 << 20, Span: 1 << 20, Base: context.Background()}
					latest(&cfg)
					for ctx.Err() == nil {
						c, err := tr.OpenConsumer(ctx, cfg)
						if err != nil {
							continue
						}
						for {
							ds, err := c.Receive(ctx, 100, 1<<20)
							if err != nil {
								break
							}
							batch := make([]transport.Settlement, len(ds))
							for i, d := range ds {
								got.Store(string(d.Payload), true)
								batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
							}
							_ = c.Settle(ctx, batch)
						}
						closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
						_ = c.Close(closing)
						cancel()
					}
				})
			}
			reaches := func(part int32, want int64) func() bool {
				return func() bool {
					found, err := w.adm.FetchOffsets(t.Context(), w.group) // an error before there is a group
					at, ok := found.Lookup(w.topic, part)
					return err == nil && ok && at.At >= want
				}
			}
			for p := range int32(8) {
				eventually(t, "every partition has a position", reaches(p, 10))
				w.put(p, "new")
				eventually(t, "it is read", reaches(p, 11))
			}
			_, old := got.Load("old-0")
			require.False(t, old, "history was handed out")
		})
	})
	t.Run("one without among others", func(t *testing.T) {
		t.Parallel()
		each(t, 3, func(w *world) {
			t := w.t
			for p := range int32(3) {
				w.put(p, "old")
			}
			at := kadm.Offsets{}
			at.AddOffset(w.topic, 1, 1, -1)
			require.NoError(t, w.adm.CommitAllOffsets(within(t), w.group, at))
			c := w.join(w.connect(), latest)
			got := payloads(w.receive(c, 1)) // partition 2 may have been made later
			require.Equal(t, []string{"old"}, got)
			w.quiet(c)
			eventually(t, "it has a position", func() bool { at, _ := w.committed(0); return at == 1 })
		})
	})
}

// TestPositionAboveTheEnd: with a leader epoch it is where the log was cut, and
// nothing is handled again; without one on_out_of_range is asked, and says how
// much is.
func TestPositionAboveTheEnd(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		name, epoch := "epoch known", int32(0)
		if !known {
			name, epoch = "epoch unknown", -1
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, 1, func(w *world) {
				t := w.t
				w.put(0, values("m", 20)...)
				at := kadm.Offsets{}
				at.AddOffset(w.topic, 0, 25, epoch)
				require.NoError(t, w.adm.CommitAllOffsets(within(t), w.group, at))
				var log said
				c := w.join(w.connect(), logTo(&log))
				if !known {
					require.Equal(t, values("m", 20), payloads(w.receive(c, 20)))
					require.Contains(t, log.String(), "goes_on_at=0 skipped=0 repeated=20")
					return
				}
				w.quiet(c)
				w.put(0, "after")
				require.Equal(t, []string{"after"}, payloads(w.receive(c, 1)))
				require.Contains(t, log.String(), "the log was cut below the position")
				require.Contains(t, log.String(), "position=25 goes_on_at=20")
			})
		})
	}
}

// TestCommitToATopicThatIsGone does not wait for it.
func TestCommitToATopicThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	c := w.join(w.connect())
	w.put(0, "a")
	ds := w.receive(c, 1)
	_, err := w.adm.DeleteTopics(within(t), w.topic)
	require.NoError(t, err)
	settle(t, c, transport.Ack, ds...)
}
