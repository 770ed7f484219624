package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// said is a log that can be read.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func logTo(s *said) func(*transport.ConsumerConfig) {
	return func(c *transport.ConsumerConfig) { c.Log = slog.New(slog.NewTextHandler(s, nil)) }
}

// each runs a test over the fake and over a real cluster.
func each(t *testing.T, partitions int32, test func(w *world)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		w, _ := fake(t, partitions)
		test(w)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(newWorld(t, brokertest.URL(t, "kafka"), partitions))
	})
}

// TestFinishedWorkSurvivesAKill: of many messages that are done behind one that
// is not, none is handled again after a kill.
func TestFinishedWorkSurvivesAKill(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		n := scale(5_000, 100_000)
		tr := w.connect()
		w.put(0, values("m", n)...)
		c := w.join(tr)
		stuck := w.receive(c, 1)[0]
		for left := n - 100; left > 0; {
			ds := w.receive(c, min(left, 1000))
			settle(t, c, transport.Ack, ds...)
			left -= len(ds)
		}
		w.receive(c, 49) // in flight when it dies; 50 more were never handed out
		at, metadata := w.committed(0)
		require.Equal(t, stuck.Offset, at)
		require.NotEmpty(t, metadata)
		t.Cleanup(kafka.Kill(c))

		next := w.join(w.connect())
		ds := w.receive(next, 100)
		require.Equal(t, "m-0", string(ds[0].Payload))
		require.Equal(t, fmt.Sprint("m-", n-99), string(ds[1].Payload))
		depth, err := tr.Depth(within(t), w.topic, w.group)
		require.NoError(t, err)
		require.EqualValues(t, 100, depth.Ready, "one stuck message is no backlog")
		settle(t, next, transport.Ack, ds...)
		w.quiet(next)
		at, metadata = w.committed(0)
		require.EqualValues(t, n, at)
		require.Empty(t, metadata)
	})
}

// TestPositionSetByHand: what was done ahead of another position counts no more.
func TestPositionSetByHand(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		tr := w.connect()
		w.put(0, values("m", 10)...)
		c := w.join(tr)
		ds := w.receive(c, 10)
		settle(t, c, transport.Ack, append(ds[:2:2], ds[5:]...)...)
		require.NoError(t, c.Close(within(t)))
		at, metadata := w.committed(0)
		require.EqualValues(t, 2, at)

		set := kadm.Offsets{}
		set.Add(kadm.Offset{Topic: w.topic, Partition: 0, At: 1, LeaderEpoch: -1, Metadata: metadata})
		require.NoError(t, w.adm.CommitAllOffsets(within(t), w.group, set))
		require.Equal(t, values("m", 10)[1:], payloads(w.receive(w.join(tr), 9)))
	})
}

// TestStart: where a group begins is written down before anything is read, and
// partitions that come later are read from their first message.
func TestStart(t *testing.T) {
	t.Parallel()
	each(t, 2, func(w *world) {
		t := w.t
		w.put(0, "old-0")
		tr := w.connect()
		latest := func(c *transport.ConsumerConfig) { c.Start = transport.StartLatest }
		c := w.join(tr, latest)
		at, _ := w.committed(0)
		require.EqualValues(t, 1, at)
		w.put(0, "new-0")
		require.Equal(t, []string{"new-0"}, payloads(w.receive(c, 1)))
		t.Cleanup(kafka.Kill(c)) // before its first commit

		_, err := w.adm.CreatePartitions(within(t), 1, w.topic)
		require.NoError(t, err)
		eventually(t, "the new partition is known", func() bool {
			w.raw.ForceMetadataRefresh()
			return w.raw.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Partition: 2, Value: []byte("later")}).FirstErr() == nil
		})
		next := w.join(w.connect(), latest)
		require.ElementsMatch(t, []string{"new-0", "later"}, payloads(w.receive(next, 2)))
		w.quiet(next)
	})
}

// TestStartWithoutDeclaring: a member finds the place of its partitions itself.
func TestStartWithoutDeclaring(t *testing.T) {
	t.Parallel()
	each(t, 2, func(w *world) {
		t := w.t
		w.put(0, "old")
		c := w.join(w.connect(), func(c *transport.ConsumerConfig) {
			c.Start, c.Topology = transport.StartLatest, transport.TopologyOff
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Receive(ctx, 10, 1<<20) // joins
		require.ErrorIs(t, err, context.DeadlineExceeded)
		eventually(t, "the place is committed", func() bool { at, _ := w.committed(0); return at == 1 })
		w.put(0, "new")
		require.Equal(t, []string{"new"}, payloads(w.receive(c, 1)))
	})
}

// TestK6_partitionsAdded: a member that runs gets them.
func TestK6_partitionsAdded(t *testing.T) {
	t.Parallel()
	for _, static := range []bool{false, true} {
		t.Run(fmt.Sprint("static ", static), func(t *testing.T) {
			t.Parallel()
			each(t, 3, func(w *world) {
				t := w.t
				c := w.join(w.connect(), func(c *transport.ConsumerConfig) {
					c.Instance = transport.Instance{ID: "one", Set: static}
				})
				for p := range int32(3) {
					w.put(p, fmt.Sprint("first-", p))
				}
				settle(t, c, transport.Ack, w.receive(c, 3)...)
				_, err := w.adm.UpdatePartitions(within(t), 12, w.topic)
				require.NoError(t, err)
				var want []string
				for p := range int32(12) {
					want = append(want, fmt.Sprint("then-", p))
					eventually(t, "the partition is there", func() bool {
						w.raw.ForceMetadataRefresh()
						return w.raw.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Partition: p, Value: []byte(want[p])}).FirstErr() == nil
					})
				}
				require.ElementsMatch(t, want, payloads(w.receive(c, 12)))
			})
		})
	}
}

// TestK7_topicMadeAgain: the consumer ends with a clear error, and the next one
// reads the new topic from its first message, whatever Start says.
func TestK7_topicMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	latest := func(c *transport.ConsumerConfig) { c.Start = transport.StartLatest }
	tr := w.connect()
	c := w.join(tr, latest)
	w.put(0, values("old", 5)...)
	old := w.receive(c, 5)
	settle(t, c, transport.Ack, old[:3]...)
	_, err := w.adm.DeleteTopics(within(t), w.topic)
	require.NoError(t, err)
	eventually(t, "the topic is made again", func() bool {
		_, err := w.adm.CreateTopic(t.Context(), 1, -1, nil, w.topic)
		return err == nil
	})
	w.raw.PurgeTopicsFromClient(w.topic)
	w.put(0, values("new", 8)...)
	_, err = c.Receive(within(t), 10, 1<<20)
	require.ErrorContains(t, err, w.topic)
	require.ErrorContains(t, err, "made again")
	require.False(t, transport.Refused(err), "it is tried again")
	settle(t, c, transport.Ack, old[3:]...) // must not move the new topic's position
	require.NoError(t, c.Close(within(t)))
	next := w.join(tr, latest)
	ds := w.receive(next, 8)
	require.Equal(t, values("new", 8), payloads(ds))
	require.NotEqual(t, old[0].ID, ds[0].ID, "the same coordinates in another topic")
}

// TestK8_outOfRange: on_out_of_range is obeyed, and what is skipped is logged
// and counted.
func TestK8_outOfRange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy  string
		want    []string
		skipped uint64
	}{
		{"earliest", []string{"m-6", "m-7", "m-8", "m-9"}, 4},
		{"latest", nil, 8},
		{"fail", nil, 0},
	} {
		t.Run(tc.policy, func(t *testing.T) {
			t.Parallel()
			each(t, 1, func(w *world) {
				t := w.t
				w.o.OnOutOfRange = tc.policy
				tr := w.connect()
				w.put(0, values("m", 10)...)
				c := w.join(tr)
				settle(t, c, transport.Ack, w.receive(c, 2)...)
				require.NoError(t, c.Close(within(t)))
				cut := kadm.Offsets{}
				cut.AddOffset(w.topic, 0, 6, -1)
				_, err := w.adm.DeleteRecords(within(t), cut)
				require.NoError(t, err)
				var log said
				c = w.join(tr, logTo(&log))
				if tc.policy == "fail" {
					_, err := c.Receive(within(t), 10, 1<<20)
					require.ErrorContains(t, err, "position 2 is not in the log")
					return
				}
				if len(tc.want) > 0 {
					ds := w.receive(c, len(tc.want))
					require.Equal(t, tc.want, payloads(ds))
					settle(t, c, transport.Ack, ds...)
				}
				w.quiet(c)
				w.put(0, "after")
				require.Equal(t, []string{"after"}, payloads(w.receive(c, 1)))
				_, skipped := kafka.Counts(c)
				require.Equal(t, tc.skipped, skipped)
				require.Contains(t, log.String(), fmt.Sprintf("position=2 log_start=6 log_end=10 goes_on_at=%d skipped=%d", 2+tc.skipped, tc.skipped))
			})
		})
	}
}

// TestK8_whileConsuming: the log is cut below what a member reads next.
func TestK8_whileConsuming(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		tr := w.connect()
		c := w.join(tr)
		w.put(0, values("m", 3)...)
		ds := w.receive(c, 3)
		settle(t, c, transport.Ack, ds[0])
		c.Pause(ds[0].Assignment)
		w.put(0, values("n", 10)...)
		cut := kadm.Offsets{}
		cut.AddOffset(w.topic, 0, 8, -1)
		_, err := w.adm.DeleteRecords(within(t), cut)
		require.NoError(t, err)
		c.Resume(ds[0].Assignment)
		got := map[string]bool{}
		for !got["n-9"] {
			more, err := c.Receive(within(t), 100, 1<<20)
			if err != nil { // supervised: closed, and opened again
				require.NoError(t, c.Close(within(t)))
				c = w.join(tr)
				continue
			}
			for _, d := range more {
				got[string(d.Payload)] = true
			}
			settle(t, c, transport.Ack, more...)
		}
		for i := 5; i < 10; i++ {
			require.True(t, got[fmt.Sprint("n-", i)], "n-%d is in the log", i)
		}
	})
}

// TestK9_gaps: commits pass what a log does not hold, or holds for brokers only.
func TestK9_gaps(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		txn, err := kgo.NewClient(kgo.SeedBrokers(w.o.Brokers...), kgo.TransactionalID(w.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer txn.Close()
		write := func(end kgo.TransactionEndTry, values ...string) {
			require.NoError(t, txn.BeginTransaction())
			for _, v := range values {
				require.NoError(t, txn.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Value: []byte(v)}).FirstErr())
			}
			require.NoError(t, txn.EndTransaction(within(t), end))
		}
		tr := w.connect()
		c := w.join(tr)
		write(kgo.TryCommit, "a", "b")
		write(kgo.TryAbort, "never-0", "never-1")
		w.put(0, "c")
		require.NoError(t, w.raw.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Key: []byte("k")}).FirstErr()) // a tombstone
		write(kgo.TryAbort, "never-2")
		ds := w.receive(c, 4) // K15: nothing of an aborted transaction
		require.Equal(t, []string{"a", "b", "c", ""}, payloads(ds))
		require.Nil(t, ds[3].Payload)
		settle(t, c, transport.Ack, ds...)
		w.quiet(c)
		ends, err := w.adm.ListEndOffsets(within(t), w.topic)
		require.NoError(t, err)
		end, _ := ends.Lookup(w.topic, 0)
		require.EqualValues(t, 10, end.Offset)
		eventually(t, "the position passes the last marker", func() bool { at, _ := w.committed(0); return at == end.Offset })
		depth, err := tr.Depth(within(t), w.topic, w.group)
		require.NoError(t, err)
		require.Zero(t, depth.Ready)
		require.NoError(t, c.Close(within(t)))
		w.quiet(w.join(tr))
	})
}

// TestK9_compaction: a message that is stuck before a wide gap does not hold
// up what is behind it.
func TestK9_compaction(t *testing.T) {
	t.Parallel()
	w, cluster := fake(t, 1)
	made, err := w.adm.CreateTopic(t.Context(), 1, -1, map[string]*string{
		"cleanup.policy": new("compact"), "segment.bytes": new("2000"), "min.cleanable.dirty.ratio": new("0"),
	}, w.topic+"-compact")
	require.NoError(t, err, made.ErrMessage)
	w.topic += "-compact"
	put := func(key string) {
		require.NoError(t, w.raw.ProduceSync(within(t), &kgo.Record{Topic: w.topic, Key: []byte(key), Value: make([]byte, 100)}).FirstErr())
	}
	put("stays")
	for range 1000 {
		put("changes")
	}
	put("last")
	cluster.Compact()
	c := w.join(w.connect(), func(c *transport.ConsumerConfig) { c.Span = 100 })
	ds := w.receive(c, 3)
	require.EqualValues(t, 0, ds[0].Offset)
	for ds[len(ds)-1].Key != "last" {
		settle(t, c, transport.Ack, ds[1:]...)
		ds = append(ds[:1], w.receive(c, 1)...)
	}
	settle(t, c, transport.Ack, ds[0])
	at, _ := w.committed(0)
	require.Greater(t, at, int64(900))
}
