package conformance

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

const maxBytes = 16 << 20

// read takes n messages that a group has waiting, acks them, and checks that no
// more come. Without a name it reads in a group of its own, from the
// beginning.
func (r *rig) read(topic, group string, n int) []*transport.Delivery {
	r.Helper()
	if group == "" {
		group = r.name("reader")
	}
	r.declare(transport.Declaration{Topic: topic, Group: group})
	ctx, cancel := r.within()
	defer cancel()
	name := r.name("reader")
	c, err := r.tr.OpenConsumer(ctx, transport.ConsumerConfig{
		Name: name, Topics: []string{topic}, Group: group, Start: transport.StartEarliest,
		Topology: transport.TopologyDeclare, Order: transport.OrderPartition, Instance: transport.Instance{ID: name},
		Prefetch: n + 1000, PrefetchBytes: maxBytes, Span: 1 << 20,
		Base: context.WithoutCancel(r.Context()), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(r, err, "read %q", topic)
	defer func() { require.NoError(r, c.Close(ctx), "close the reader of %q", topic) }()
	var all []*transport.Delivery
	for len(all) < n {
		ds, err := c.Receive(ctx, n-len(all), maxBytes)
		require.NoError(r, err, "%d of %d messages are in %q", len(all), n, topic)
		all = append(all, ds...)
		batch := make([]transport.Settlement, len(ds))
		for i, d := range ds {
			batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
		}
		require.NoError(r, c.Settle(ctx, batch)) // some brokers give one message at a time
	}
	quiet, stop := context.WithTimeout(ctx, r.o.Quiet)
	defer stop()
	more, err := c.Receive(quiet, 1000, maxBytes)
	require.Empty(r, deliveryIDs(more), "more than %d messages are in %q", n, topic)
	require.ErrorIs(r, err, context.DeadlineExceeded)
	return all
}

// nothingLeft checks that a group is done with a topic. Nobody reads in it.
func (r *rig) nothingLeft(topic, group string) {
	r.Helper()
	r.read(topic, group, 0)
	if !r.caps.Depth {
		return
	}
	ctx, cancel := r.within()
	defer cancel()
	d, err := r.tr.Depth(ctx, topic, group)
	require.NoError(r, err)
	require.Zero(r, d.Ready+d.Delayed+d.Held, "depth of %q", topic)
}

// exhausted waits until a group that is being read is done with all of a topic:
// with copies too, of what was published again since its confirmation was lost.
func (r *rig) exhausted(topic, group string) {
	r.Helper()
	if !r.caps.Depth {
		return
	}
	var d transport.Depth
	var err error
	r.eventually("the group is done with its topic", func() bool {
		ctx, cancel := r.within()
		defer cancel()
		d, err = r.tr.Depth(ctx, topic, group)
		return err == nil && d.Ready+d.Delayed+d.Held == 0
	}, func() any { return fmt.Sprintf("%+v, %v", d, err) })
}

// deadTopic is the dead letter of a consumer, as it is named by default.
func (r *rig) deadTopic(topic, group string) string {
	r.Helper()
	name, err := transport.DeadTopic(transport.DefaultDeadTopic, topic, group)
	require.NoError(r, err)
	return name
}

// dead takes n messages out of a consumer's dead letter, where there are no more.
func (r *rig) dead(topic, group string, n int) []*transport.Delivery {
	r.Helper()
	return r.read(r.deadTopic(topic, group), "", n)
}

func deliveryIDs(ds []*transport.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.ID
	}
	return out
}
