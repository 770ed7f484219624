package memory_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topicName = "orders"
	groupName = "charge"
	unbounded = math.MaxInt64
)

// rig is a broker with a publisher and one topic.
type rig struct {
	*testing.T
	broker *memory.Broker
	tr     *memory.Transport
	pub    transport.Producer
}

func newRig(t *testing.T, o memory.Options) *rig {
	t.Helper()
	b := memory.NewBroker(o)
	tr := b.Transport()
	pub, err := tr.OpenProducer(t.Context())
	require.NoError(t, err)
	return &rig{T: t, broker: b, tr: tr, pub: pub}
}

func (r *rig) open(change ...func(*transport.ConsumerConfig)) transport.Consumer {
	r.Helper()
	cfg := transport.ConsumerConfig{Name: "c", Topics: []string{topicName}, Group: groupName, Base: r.Context()}
	for _, fn := range change {
		fn(&cfg)
	}
	c, err := r.tr.OpenConsumer(r.Context(), cfg)
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, c.Close(context.Background())) })
	return c
}

func msg(id, key string) *message.Message {
	m := &message.Message{UUID: id, Payload: message.Payload("body of " + id)}
	if key != "" {
		m.Metadata = message.Metadata{transport.KeyHeader: key}
	}
	return m
}

// publish sends n messages of one key, named prefix0, prefix1, ….
func (r *rig) publish(prefix, key string, n int) {
	r.Helper()
	for i := range n {
		require.NoError(r, r.pub.Publish(r.Context(), topicName, msg(fmt.Sprint(prefix, i), key)))
	}
}

func (r *rig) receive(c transport.Consumer, limit int) []*transport.Delivery {
	r.Helper()
	ds, err := c.Receive(r.Context(), limit, unbounded)
	require.NoError(r, err)
	return ds
}

// receiveAll gathers n deliveries, however many each Receive gives.
func (r *rig) receiveAll(c transport.Consumer, n int) []*transport.Delivery {
	r.Helper()
	var all []*transport.Delivery
	for len(all) < n {
		all = append(all, r.receive(c, n-len(all))...)
	}
	return all
}

// nothing asserts that a Receive has nothing to give. It needs a bubble.
func (r *rig) nothing(c transport.Consumer) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 1)
	defer cancel()
	ds, err := c.Receive(ctx, 100, unbounded)
	require.ErrorIs(r, err, context.DeadlineExceeded)
	require.Empty(r, ds)
}

func (r *rig) settle(c transport.Consumer, v transport.Verdict, ds ...*transport.Delivery) {
	r.Helper()
	require.NoError(r, c.Settle(r.Context(), settlements(v, ds...)))
}

func settlements(v transport.Verdict, ds ...*transport.Delivery) []transport.Settlement {
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: v}
	}
	return batch
}

func (r *rig) depth() transport.Depth {
	r.Helper()
	d, err := r.tr.Depth(r.Context(), topicName, groupName)
	require.NoError(r, err)
	return d
}

func ids(ds []*transport.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.ID
	}
	return out
}

func caps(change func(*transport.Capabilities)) *transport.Capabilities {
	c := memory.Capabilities()
	change(&c)
	return &c
}
