package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// static is a member with a name of its own.
func static(c *transport.ConsumerConfig) { c.Instance = transport.Instance{ID: "pod-0", Set: true} }

// TestK12_staticIDTwice: of two workers with one name the first ends, and says
// why; the second goes on.
func TestK12_staticIDTwice(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		first := w.join(w.connect(), static)
		w.put(0, "a")
		held := w.receive(first, 1)
		second := w.join(w.connect(), static)
		require.Equal(t, []string{"a"}, payloads(w.receive(second, 1)))
		_, err := first.Receive(within(t), 10, 1<<20)
		require.ErrorIs(t, err, transport.ErrFenced)
		require.ErrorContains(t, err, "pod-0")
		require.ErrorIs(t, context.Cause(held[0].Assignment.Context()), transport.ErrRevoked)
		require.NoError(t, first.Settle(within(t), []transport.Settlement{{Delivery: held[0], Verdict: transport.Ack}}), "too late: it is dropped")
		late, _ := kafka.Counts(first)
		require.EqualValues(t, 1, late)
		require.NoError(t, first.Close(within(t)))
		w.put(0, "b")
		require.Equal(t, []string{"b"}, payloads(w.receive(second, 1)))
	})
}

// TestStaticMemberIsBackAtOnce: what a static member held when it was killed,
// or closed, waits for its next process, and not for the session to end.
func TestStaticMemberIsBackAtOnce(t *testing.T) {
	t.Parallel()
	each(t, 1, func(w *world) {
		t := w.t
		w.o.SessionTimeout = 25 * time.Second // a takeover would take longer than the test waits
		c := w.join(w.connect(), static)
		w.put(0, values("m", 3)...)
		settle(t, c, transport.Ack, w.receive(c, 2)...)
		t.Cleanup(kafka.Kill(c))
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		for range 3 {
			c = w.join(w.connect(), static)
			ds, err := c.Receive(ctx, 10, 1<<20)
			require.NoError(t, err)
			require.Equal(t, []string{"m-2"}, payloads(ds))
			require.NoError(t, c.Close(within(t)))
		}
	})
}

// TestStoppedWhileJoining: who is stopped before the group has let it in, as a
// killed member holds that up, leaves no member behind that others wait for.
func TestStoppedWhileJoining(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	w.o.SessionTimeout = 20 * time.Second
	killed := w.join(w.connect())
	t.Cleanup(kafka.Kill(killed))
	members := func() int {
		groups, err := w.adm.DescribeGroups(t.Context(), w.group)
		require.NoError(t, err)
		return len(groups[w.group].Members)
	}
	require.Equal(t, 1, members())
	w.o.SessionTimeout = 45 * time.Second // what is left behind stays longer than the killed one
	tr := w.connect()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := tr.OpenConsumer(ctx, transport.ConsumerConfig{
			Name: "c", Topics: []string{w.topic}, Group: w.group, Start: transport.StartEarliest, Prefetch: 10, PrefetchBytes: 1 << 20, Base: context.Background(),
		})
		ended <- err
	}()
	eventually(t, "it has asked to join", func() bool { return members() == 2 })
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.LessOrEqual(t, members(), 1)
}

// TestRevokeIsBounded: a handler that does not end holds up a rebalance no
// longer than rebalance_drain, and nothing of it is committed.
func TestRevokeIsBounded(t *testing.T) {
	t.Parallel()
	each(t, 2, func(w *world) {
		t := w.t
		w.o.RebalanceDrain = 300 * time.Millisecond
		a := w.join(w.connect())
		w.put(0, "a")
		w.put(1, "b")
		held := w.receive(a, 2)
		going, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = a.Receive(going, 10, 1<<20) // the member lives
		}()
		defer func() { stop(); <-done }()
		b := w.join(w.connect())
		again := w.receive(b, 1)[0]
		for _, d := range held {
			if d.Partition == again.Partition {
				require.ErrorIs(t, context.Cause(d.Assignment.Context()), transport.ErrRevoked)
				settle(t, a, transport.Ack, d)
			}
		}
		late, _ := kafka.Counts(a)
		require.EqualValues(t, 1, late)
		at, _ := w.committed(again.Partition)
		require.Zero(t, at)
	})
}

// TestMoveFromRange: members that share out by range, as Sarama's do, and ours
// share a group while it moves.
func TestMoveFromRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 4)
	theirs := func() *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(w.o.Brokers...), kgo.ConsumerGroup(w.group), kgo.ConsumeTopics(w.topic), kgo.Balancers(kgo.RangeBalancer()))
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return cl
	}
	old := theirs()
	w.put(0, "a")
	require.Equal(t, 1, old.PollFetches(within(t)).NumRecords())

	_, err := w.connect().OpenConsumer(within(t), transport.ConsumerConfig{
		Topics: []string{w.topic}, Group: w.group, Prefetch: 1, PrefetchBytes: 1, Base: context.Background(),
	})
	require.ErrorIs(t, err, kerr.InconsistentGroupProtocol)
	require.ErrorContains(t, err, "[cooperative-sticky, range]")
	require.True(t, transport.Refused(err))

	w.o.Balancers = []string{"cooperative-sticky", "range"}
	c := w.join(w.connect())
	polled := make(chan struct{})
	polling, stop := context.WithCancel(context.Background())
	go func() {
		defer close(polled)
		for polling.Err() == nil {
			old.PollFetches(polling)
		}
	}()
	defer func() { stop(); <-polled }()
	n := 0
	eventually(t, "ours gets a share", func() bool {
		for p := range int32(4) {
			w.put(p, values("m", 1)...)
		}
		n += 4
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		ds, err := c.Receive(ctx, 10, 1<<20)
		return err == nil && len(ds) > 0
	})
}

// connectGroup makes the group one of Kafka Connect's, with a member.
func (w *world) connectGroup() {
	w.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType = w.group, "connect"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 120_000, 120_000 // it never says that it lives
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "compatible"
	req.Protocols = append(req.Protocols, p)
	resp, err := req.RequestWith(within(w.t), w.raw)
	require.NoError(w.t, err)
	req.MemberID = resp.MemberID
	_, err = req.RequestWith(within(w.t), w.raw)
	require.NoError(w.t, err)
}

// TestOtherProtocol: a group that is something else is refused by name.
func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	w.connectGroup()
	_, err := w.connect().OpenConsumer(within(t), transport.ConsumerConfig{
		Topics: []string{w.topic}, Group: w.group, Prefetch: 1, PrefetchBytes: 1, Base: context.Background(), Topology: transport.TopologyOff,
	})
	require.ErrorContains(t, err, `"connect"`)
	require.True(t, transport.Refused(err))
}

// TestServerSideGroups: the suite with the group protocol of Kafka 4 (KIP-848).
func TestServerSideGroups(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t, "kafka")
	o := suite(url)
	inner := o.Open
	o.Open = func(tb transporttest.TB) transporttest.Broker {
		b := inner(tb)
		b.Transport = func(tb transporttest.TB) transport.Transport {
			o := options(url)
			o.GroupProtocol, o.SessionTimeout = "consumer", 0
			return open(tb, o)
		}
		return b
	}
	o.Takeover = 50 * time.Second // the broker's session timeout
	o.Lacks["Kill"] = "a takeover takes the broker's 45s"
	names := []string{
		"A1_no_loss", "A6_exclusive", "H1_join", "H1_leave", "A5_groups", "A5_start", "A5_topics", "B1_key_order", "B3_order_after_close",
		"C1_release", "C3_partial_batch", "C7_settle_late", "H4_receive_ends", "I1_reopen", "SPI_close", "SPI_declare", "SPI_depth",
	}
	for _, res := range transporttest.Check(t.Context(), o, names...) {
		require.Empty(t, res.Failures, res.Case)
		require.Empty(t, res.Skip, res.Case)
	}
}

// TestInstanceThatIsHeld: where the broker shares out partitions, it waits for a
// static member that was killed, and the error says so.
func TestInstanceThatIsHeld(t *testing.T) {
	t.Parallel()
	w, cluster := fake(t, 1)
	w.o.GroupProtocol, w.o.SessionTimeout = "consumer", 0
	cluster.ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse) //nolint:forcetypeassert // by its key
		resp.ErrorCode = kerr.UnreleasedInstanceID.Code
		return resp, nil, true
	})
	cfg := transport.ConsumerConfig{Topics: []string{w.topic}, Group: w.group, Prefetch: 1, PrefetchBytes: 1, Base: context.Background()}
	static(&cfg)
	_, err := w.connect().OpenConsumer(within(t), cfg)
	require.ErrorIs(t, err, kerr.UnreleasedInstanceID)
	require.ErrorContains(t, err, "group.consumer.session.timeout.ms")
	require.False(t, transport.Refused(err))
}

// TestK11_commitErrors: whatever the coordinator says to a commit, an ack that
// Settle confirms is committed, and one that is not confirmed is told again.
func TestK11_commitErrors(t *testing.T) {
	t.Parallel()
	for code := int16(-1); code < 140; code++ {
		said := kerr.ErrorForCode(code)
		if said == nil {
			continue
		}
		name, _, _ := strings.Cut(said.Error(), ":")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := fake(t, 1)
			c := w.join(w.connect())
			w.put(0, values("m", 3)...)
			ds := w.receive(c, 3)
			cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
				req := r.(*kmsg.OffsetCommitRequest) //nolint:forcetypeassert // by its key
				resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
				for _, rt := range req.Topics {
					st := kmsg.NewOffsetCommitResponseTopic()
					st.Topic, st.TopicID = rt.Topic, rt.TopicID
					for _, rp := range rt.Partitions {
						sp := kmsg.NewOffsetCommitResponseTopicPartition()
						sp.Partition, sp.ErrorCode = rp.Partition, code
						st.Partitions = append(st.Partitions, sp)
					}
					resp.Topics = append(resp.Topics, st)
				}
				return resp, nil, true
			})
			batch := []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}, {Delivery: ds[2], Verdict: transport.Ack}}
			if err := c.Settle(within(t), batch); err != nil {
				if errors.Is(err, transport.ErrFenced) {
					return
				}
				require.NoError(t, c.Settle(within(t), batch), "once more")
			}
			at, _ := w.committed(0)
			require.EqualValues(t, 1, at)
			settle(t, c, transport.Ack, ds[1])
			at, _ = w.committed(0)
			require.EqualValues(t, 3, at)
		})
	}
}
