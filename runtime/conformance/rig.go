package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/history"
)

// rig is one case's broker, with a first connection to it.
type rig struct {
	TB
	o      *suite
	broker Broker
	caps   transport.Capabilities
	tr     transport.Transport
	log    *history.Log // what is published, and what is done to processes and the broker
	pub    transport.Producer

	prefix string // of every name, so that cases may share a broker
	count  atomic.Int64
	gates  []*gate
	logs   []*history.Log // of recorded instances
	hurt   bool           // connections were broken: closing them may say so
}

func newRig(tb TB, s *suite) *rig {
	tb.Helper()
	r := &rig{TB: tb, o: s, broker: s.Open(tb), log: history.NewLog("suite"), prefix: fmt.Sprintf("c%08x", rand.Uint32())} //nolint:gosec // keeps names apart, guards nothing
	r.tr = r.connect()
	r.caps = r.tr.Capabilities()
	return r
}

// within bounds what must happen.
func (r *rig) within() (context.Context, context.CancelFunc) {
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

// eventually looks again and again until it is so.
func (r *rig) eventually(what string, so func() bool, state func() any) {
	r.Helper()
	ctx, cancel := r.within()
	defer cancel()
	pause := 2 * time.Millisecond
	for !so() {
		pause = min(pause*5/4, 100*time.Millisecond)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			require.FailNow(r, "not in time: "+what, "%+v", state())
		}
	}
}

// name makes one that is not used yet.
func (r *rig) name(what string) string {
	return fmt.Sprintf("%s.%s.%d", r.prefix, what, r.count.Add(1))
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

func (r *rig) declare(ds ...transport.Declaration) {
	r.Helper()
	ctx, cancel := r.within()
	defer cancel()
	require.NoError(r, r.tr.Declare(ctx, transport.TopologyDeclare, ds...))
}

// topic makes a topic with one group.
func (r *rig) topic() (topic, group string) {
	r.Helper()
	topic, group = r.name("orders"), r.name("charge")
	r.declare(transport.Declaration{Topic: topic, Group: group})
	return topic, group
}

// publish publishes in calls of at most 500 messages.
func (r *rig) publish(topic string, msgs ...*message.Message) {
	r.Helper()
	ctx, cancel := r.within()
	defer cancel()
	if r.pub == nil {
		p, err := history.Wrap(r.tr, r.log).OpenProducer(ctx)
		require.NoError(r, err, "open producer")
		r.pub = p
		r.Cleanup(func() {
			ctx, cancel := r.within()
			defer cancel()
			r.closed("producer", p.Close(ctx))
		})
	}
	for len(msgs) > 0 {
		n := min(len(msgs), 500)
		require.NoError(r, r.pub.Publish(ctx, topic, msgs[:n]...), "publish to %q", topic)
		msgs = msgs[n:]
	}
}

// judge holds what instances or processes have recorded, with what was
// published and done to them, against the rules of package history.
func (r *rig) judge(topic string, events []history.Event, o history.Options) history.Report {
	r.Helper()
	o.Topic = topic
	o.Async = r.o.Async || !r.caps.StableCoordinates // then acks are not answered either
	o.Unordered = r.caps.KeyOrder != transport.ScopeGroup
	report := history.Check(slices.Concat(r.log.Events(), events), o)
	require.Empty(r, report.Violations, "%v", report)
	return report
}

// store opens what remembers dedup keys.
func (r *rig) store() middleware.DedupStore {
	if r.broker.Store != nil {
		return r.broker.Store(r.TB)
	}
	return middleware.NewMemoryDedup(1 << 16)
}

func msg(id, key string) *message.Message {
	m := &message.Message{UUID: id, Payload: message.Payload("body of " + id), Metadata: message.Metadata{}}
	if key != "" {
		m.Metadata[transport.KeyHeader] = key
	}
	return m
}

// unkeyed makes n messages without keys, with ids prefix-0 and so on.
func unkeyed(prefix string, n int) []*message.Message {
	out := make([]*message.Message, n)
	for i := range out {
		out[i] = msg(fmt.Sprintf("%s-%d", prefix, i), "")
	}
	return out
}

// keyed makes n messages of each of so many keys, in turns; ids are "key/n".
func keyed(keys, n int) []*message.Message {
	out := make([]*message.Message, 0, keys*n)
	for i := range n {
		for k := range keys {
			key := fmt.Sprintf("k%d", k)
			out = append(out, msg(fmt.Sprintf("%s/%05d", key, i), key))
		}
	}
	return out
}

func ids(msgs []*message.Message) []string {
	out := make([]string, len(msgs))
	for i, m := range msgs {
		out[i] = m.UUID
	}
	return out
}
