package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// soaking tells whether tests may take long.
func soaking() bool { return os.Getenv("LEAT_SOAK") != "" }

func soakOnly(t *testing.T) {
	t.Helper()
	if !soaking() {
		t.Skip("it takes long: LEAT_SOAK=1 has it")
	}
}

// scale is a number of messages, rounds or kills.
func scale(usual, soak int) int {
	if soaking() {
		return soak
	}
	return usual
}

// TB is what rigs need of a test, or of one of rapid's.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// world is a cluster with a topic and a group, and a plain client beside us.
type world struct {
	t            *testing.T
	o            kafka.Options
	topic, group string
	raw          *kgo.Client
	adm          *kadm.Client
}

// fake is a world within the process.
func fake(t *testing.T, partitions int32) (*world, *kfake.Cluster) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return newWorld(t, "kafka://"+strings.Join(c.ListenAddrs(), ","), partitions), c
}

// cluster is a fake with options of its own, and a topic.
func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second), kfake.SeedTopics(2, "orders")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func newWorld(t *testing.T, url string, partitions int32) *world {
	t.Helper()
	w := &world{t: t, o: options(url)}
	w.o.Partitions = int(partitions)
	raw, err := kgo.NewClient(kgo.SeedBrokers(w.o.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	w.raw, w.adm = raw, kadm.NewClient(raw)
	prefix := fmt.Sprintf("w%08x", rand.Uint32())
	w.topic, w.group = prefix+"-orders", prefix+"-charge"
	made, err := w.adm.CreateTopic(t.Context(), partitions, -1, nil, w.topic)
	require.NoError(t, err, made.ErrMessage)
	return w
}

// within bounds what must happen.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) connect() *kafka.Transport {
	w.t.Helper()
	tr := open(w.t, w.o)
	w.t.Cleanup(func() { require.NoError(w.t, tr.Close(context.Background())) })
	return tr
}

// join opens a member of the group.
func (w *world) join(tr *kafka.Transport, change ...func(*transport.ConsumerConfig)) transport.Consumer {
	w.t.Helper()
	cfg := transport.ConsumerConfig{
		Name: "c", Topics: []string{w.topic}, Group: w.group, Start: transport.StartEarliest,
		Prefetch: 1000, PrefetchBytes: 16 << 20, Span: 1 << 20, Base: context.Background(),
	}
	for _, c := range change {
		c(&cfg)
	}
	c, err := tr.OpenConsumer(within(w.t), cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx) // the test may have
	})
	return c
}

// put writes records of these values to a partition.
func (w *world) put(partition int32, values ...string) {
	w.t.Helper()
	rs := make([]*kgo.Record, len(values))
	for i, v := range values {
		rs[i] = &kgo.Record{Topic: w.topic, Partition: partition, Key: []byte(v), Value: []byte(v)}
	}
	require.NoError(w.t, w.raw.ProduceSync(within(w.t), rs...).FirstErr())
}

func values(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, "-", i)
	}
	return out
}

// receive waits for n deliveries.
func (w *world) receive(c transport.Consumer, n int) []*transport.Delivery {
	w.t.Helper()
	var ds []*transport.Delivery
	ctx := within(w.t)
	for len(ds) < n {
		more, err := c.Receive(ctx, n-len(ds), 16<<20)
		require.NoError(w.t, err, "%d of %d came", len(ds), n)
		ds = append(ds, more...)
	}
	return ds
}

// quiet checks that nothing comes for a while.
func (w *world) quiet(c transport.Consumer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	ds, err := c.Receive(ctx, 10, 1<<20)
	require.Empty(w.t, payloads(ds))
	require.ErrorIs(w.t, err, context.DeadlineExceeded)
}

func settle(tb TB, c transport.Consumer, v transport.Verdict, ds ...*transport.Delivery) {
	tb.Helper()
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: v}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(tb, c.Settle(ctx, batch))
}

func payloads(ds []*transport.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = string(d.Payload)
	}
	return out
}

// committed is the group's position in a partition, and its metadata.
func (w *world) committed(partition int32) (int64, string) {
	w.t.Helper()
	found, err := w.adm.FetchOffsets(within(w.t), w.group)
	require.NoError(w.t, err)
	o, ok := found.Lookup(w.topic, partition)
	if !ok {
		return -1, ""
	}
	return o.At, o.Metadata
}

// eventually waits until so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, 30*time.Second, 10*time.Millisecond, what)
}
