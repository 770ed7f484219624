package transporttest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// rig is one case's broker, with a first connection to it.
type rig struct {
	TB
	o      *Options
	broker Broker
	caps   transport.Capabilities
	tr     transport.Transport

	prefix string // of every name, so that cases may share a broker
	count  atomic.Int64
	hurt   bool // connections were broken: closing them may say so
}

func newRig(tb TB, o *Options) *rig {
	tb.Helper()
	r := &rig{TB: tb, o: o, broker: o.Open(tb)}
	r.prefix = fmt.Sprintf("t%08x", rand.Uint32()) //nolint:gosec // keeps names apart, guards nothing
	r.tr = r.connect()
	r.caps = r.tr.Capabilities()
	return r
}

// within bounds what must happen.
func (r *rig) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), r.o.Patience)
}

// withinTakeover bounds what may have to wait for a member to be given up.
func (r *rig) withinTakeover() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), r.o.Patience+r.o.Takeover)
}

// rest lets time pass in which something wrong may show.
func (r *rig) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// scale is a number of messages or rounds.
func (r *rig) scale(short, normal, soak int) int {
	switch {
	case r.o.Soak:
		return soak
	case r.o.Short:
		return short
	default:
		return normal
	}
}

// name makes one that is not used yet.
func (r *rig) name(what string) string {
	return fmt.Sprintf("%s-%s-%d", r.prefix, what, r.count.Add(1))
}

// connect opens the broker as another process does.
func (r *rig) connect() transport.Transport {
	r.Helper()
	tr := r.broker.Transport(r.TB)
	r.Cleanup(func() {
		ctx, cancel := r.within()
		defer cancel()
		r.closed("transport", tr.Close(ctx))
	})
	return tr
}

func (r *rig) producer(tr transport.Transport) transport.Producer {
	r.Helper()
	ctx, cancel := r.within()
	defer cancel()
	p, err := tr.OpenProducer(ctx)
	require.NoError(r, err, "open producer")
	r.Cleanup(func() {
		ctx, cancel := r.within()
		defer cancel()
		r.closed("producer", p.Close(ctx))
	})
	return p
}

// closed takes the error of a Close.
func (r *rig) closed(what string, err error) {
	r.Helper()
	switch {
	case err == nil:
	case r.hurt:
		r.Logf("close %s: %v", what, err)
	default:
		r.Errorf("close %s: %v", what, err)
	}
}

func (r *rig) declare(mode transport.Topology, ds ...transport.Declaration) error {
	ctx, cancel := r.within()
	defer cancel()
	return r.tr.Declare(ctx, mode, ds...)
}

func (r *rig) publish(p transport.Producer, topic string, msgs ...*message.Message) {
	r.Helper()
	ctx, cancel := r.within()
	defer cancel()
	require.NoError(r, p.Publish(ctx, topic, msgs...), "publish to %q", topic)
}

// stream is a topic with one group and a publisher.
type stream struct {
	*rig
	topic, group string
	pub          transport.Producer
}

// stream declares a topic and a group of it.
func (r *rig) stream() *stream {
	r.Helper()
	s := &stream{rig: r, topic: r.name("orders"), group: r.name("charge")}
	require.NoError(r, r.declare(transport.TopologyDeclare, transport.Declaration{Topic: s.topic, Group: s.group}))
	s.pub = r.producer(r.tr)
	return s
}

// send publishes n messages of one key, with ids prefix-0 and so on.
func (s *stream) send(prefix, key string, n int) []string {
	s.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	s.publish(s.pub, s.topic, messages(key, ids)...)
	return ids
}

// spread publishes n messages, each of a key of its own.
func (s *stream) spread(prefix string, n int) []string {
	s.Helper()
	ids := make([]string, n)
	msgs := make([]*message.Message, n)
	for i := range msgs {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
		msgs[i] = msg(ids[i], ids[i])
	}
	s.publish(s.pub, s.topic, msgs...)
	return ids
}

// join opens a member of the stream's group.
func (s *stream) join(tr transport.Transport, change ...func(*transport.ConsumerConfig)) *member {
	s.Helper()
	return s.member(tr, append([]func(*transport.ConsumerConfig){func(c *transport.ConsumerConfig) {
		c.Topics, c.Group = []string{s.topic}, s.group
	}}, change...)...)
}

// member opens a consumer that change says everything about.
func (r *rig) member(tr transport.Transport, change ...func(*transport.ConsumerConfig)) *member {
	r.Helper()
	m := &member{r: r, tr: tr, cfg: r.config(change...)}
	m.open()
	return m
}

func (r *rig) config(change ...func(*transport.ConsumerConfig)) transport.ConsumerConfig {
	name := r.name("member")
	cfg := transport.ConsumerConfig{
		Name: name, Start: transport.StartEarliest, Topology: transport.TopologyDeclare,
		Order: r.caps.DefaultOrder(), Instance: transport.Instance{ID: name},
		Prefetch: maxLimit, PrefetchBytes: maxBytes, Span: 1 << 20,
		Base: context.WithoutCancel(r.Context()), Log: slog.New(slog.DiscardHandler),
	}
	for _, fn := range change {
		fn(&cfg)
	}
	return cfg
}

func msg(id, key string) *message.Message {
	m := message.NewMessage(id, []byte("body of "+id))
	if key != "" {
		m.Metadata.Set(transport.KeyHeader, key)
	}
	return m
}

func messages(key string, ids []string) []*message.Message {
	msgs := make([]*message.Message, len(ids))
	for i, id := range ids {
		msgs[i] = msg(id, key)
	}
	return msgs
}

// all checks that these have come, in whatever order.
func (r *rig) all(want []string, ds []*transport.Delivery) {
	r.Helper()
	require.ElementsMatch(r, want, ids(ds))
}

func ids(ds []*transport.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.ID
	}
	return out
}
