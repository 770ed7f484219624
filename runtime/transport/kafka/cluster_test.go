package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/history"
)

// traffic publishes and consumes for as long as a test breaks something.
type traffic struct {
	w      *world
	mu     sync.Mutex
	sent   map[string]bool // confirmed
	got    map[string]int
	stop   context.CancelFunc
	loops  sync.WaitGroup
	member func()
}

func (w *world) traffic() *traffic {
	w.t.Helper()
	tf := &traffic{w: w, sent: map[string]bool{}, got: map[string]int{}}
	going, stop := context.WithCancel(context.Background())
	tf.stop = stop
	p := w.producer()
	tf.loops.Go(func() {
		for n := 0; going.Err() == nil; n++ {
			id := fmt.Sprint("m-", n)
			m := message.NewMessage(id, nil)
			m.Metadata.Set(transport.KeyHeader, id)
			for going.Err() == nil {
				ctx, cancel := context.WithTimeout(going, 30*time.Second)
				err := p.Publish(ctx, w.topic, m)
				cancel()
				if err == nil {
					tf.mu.Lock()
					tf.sent[id] = true
					tf.mu.Unlock()
					break
				}
			}
		}
	})
	tf.member = w.ours(func(id, _ string) {
		tf.mu.Lock()
		defer tf.mu.Unlock()
		tf.got[id]++
	})
	w.t.Cleanup(tf.end)
	return tf
}

func (tf *traffic) end() {
	tf.stop()
	tf.loops.Wait()
	tf.member()
}

// flows waits until so many more are sent and handled.
func (tf *traffic) flows(what string, n int) {
	tf.w.t.Helper()
	count := func() (int, int) {
		tf.mu.Lock()
		defer tf.mu.Unlock()
		return len(tf.sent), len(tf.got)
	}
	sent, got := count()
	require.Eventually(tf.w.t, func() bool {
		s, g := count()
		return s >= sent+n && g >= got+n
	}, 90*time.Second, 50*time.Millisecond, what)
}

// lostNone stops publishing and waits until all that was confirmed is handled.
func (tf *traffic) lostNone() {
	tf.w.t.Helper()
	tf.stop()
	tf.loops.Wait()
	missing := func() (ids []string) {
		tf.mu.Lock()
		defer tf.mu.Unlock()
		for id := range tf.sent {
			if tf.got[id] == 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	require.Eventually(tf.w.t, func() bool { return len(missing()) == 0 }, 60*time.Second, 50*time.Millisecond, "all that was confirmed is handled")
	tf.mu.Lock()
	defer tf.mu.Unlock()
	twice := 0
	for _, n := range tf.got {
		twice += n - 1
	}
	tf.w.t.Logf("%d messages, %d times again", len(tf.sent), twice)
}

// node is the broker with an id of a cluster of three.
func node(id int32) string { return fmt.Sprint("kafka3-", id) }

// createOn makes the world's topic one with a partition on each of these
// brokers, and no copies.
func (w *world) createOn(brokers ...int32) {
	w.t.Helper()
	w.topic += "-single"
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = w.topic, -1, -1
	for i, broker := range brokers {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), []int32{broker}
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	one := kmsg.NewCreateTopicsRequestTopicConfig()
	one.Name, one.Value = "min.insync.replicas", new("1")
	rt.Configs = append(rt.Configs, one)
	req.Topics = append(req.Topics, rt)
	made, err := req.RequestWith(within(w.t), w.raw)
	require.NoError(w.t, err)
	require.NoError(w.t, kerr.ErrorForCode(made.Topics[0].ErrorCode))
}

// TestCluster breaks brokers of a cluster of three, one case after the other.
// K4 and K5 take minutes on a busy machine, and so wait for LEAT_SOAK.
//
//nolint:paralleltest,tparallel // they would break each other's
func TestCluster(t *testing.T) {
	t.Parallel()
	brokers := brokertest.Start(t, "kafka3")
	url := brokers.URL("kafka3")
	all := []string{node(1), node(2), node(3)}

	t.Run("K3 partition leader killed", func(t *testing.T) {
		w := newWorld(t, url, 3)
		tf := w.traffic()
		tf.flows("before", 100)
		found, err := w.adm.ListTopics(within(t), w.topic)
		require.NoError(t, err)
		leader := node(found[w.topic].Partitions[0].Leader)
		brokers.Kill(leader)
		tf.flows("without the leader", 100)
		brokers.Up(leader)
		tf.flows("with it again", 100)
		tf.lostNone()
	})
	t.Run("K4 group coordinator killed", func(t *testing.T) {
		soakOnly(t)
		w := newWorld(t, url, 3)
		tf := w.traffic()
		tf.flows("before", 100)
		found := w.adm.FindGroupCoordinators(within(t), w.group)
		coordinator := node(found[w.group].NodeID)
		brokers.Kill(coordinator)
		tf.flows("without the coordinator", 100)
		brokers.Up(coordinator)
		tf.flows("with it again", 100)
		tf.lostNone()
	})
	t.Run("K5 rolling restart", func(t *testing.T) {
		soakOnly(t)
		w := newWorld(t, url, 3)
		tf := w.traffic()
		for _, name := range all {
			tf.flows("before "+name, 50)
			brokers.Restart(name)
		}
		tf.flows("after all", 100)
		tf.lostNone()
	})
	t.Run("a partition whose only copy is down", func(t *testing.T) {
		w := newWorld(t, url, 1)
		w.createOn(1, 2)
		w.put(0, "a")
		w.put(1, "b")
		brokers.Kill(node(2))
		s := w.site()
		p := s.start("one", "--set=http.listen=127.0.0.1:0", "--set=consumers.c.dead_letter=drop")
		p.until("its consumer is blocked", func() bool { return strings.Contains(p.status(), `"state": "blocked"`) })
		require.Contains(t, p.status(), `partitions [1] have no leader`)
		p.until("the other partition is read", func() bool { return s.count(history.Done, "") == 1 })
		brokers.Up(node(2))
		p.until("it is read when it has a leader", func() bool { return s.count(history.Done, "") == 2 })
		p.until("its consumer runs", func() bool { return strings.Contains(p.status(), `"state": "running"`) })
		p.stop()
	})
	t.Run("K13 two of three down", func(t *testing.T) {
		w := newWorld(t, url, 1)
		found, err := w.adm.ListTopics(within(t), w.topic)
		require.NoError(t, err)
		leader := node(found[w.topic].Partitions[0].Leader)
		p := w.producer()
		publish := func(id string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
			defer cancel()
			return p.Publish(ctx, w.topic, message.NewMessage(id, nil))
		}
		require.NoError(t, publish("before"))
		var others []string
		for _, name := range all {
			if name != leader {
				others = append(others, name)
			}
		}
		brokers.Kill(others...)
		began := time.Now()
		err = publish("meanwhile")
		require.Error(t, err, "one copy is less than min.insync.replicas")
		require.Less(t, time.Since(began), 30*time.Second)
		if pe, ok := errors.AsType[*transport.PublishError](err); ok {
			require.False(t, pe.Failed[0].Permanent)
		}
		brokers.Up(others...)
		eventually(t, "publishing works again", func() bool { return publish("after") == nil })
	})
}
