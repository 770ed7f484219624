package conformance

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// deadLetters: exactly what has failed for good is in the dead letter, each
// once, however much else goes on.
func deadLetters(r *rig) {
	topic, group := r.topic()
	n := r.o.scale(500, 1000, 10_000)
	l := newLedger(r)
	poison := func(id string) bool { return checksum(id)%10 == 0 }
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		switch {
		case !poison(m.UUID):
			return nil, nil
		case checksum(m.UUID)%20 == 0:
			return nil, handlers.Permanent(errAsAsked)
		default:
			return nil, errAsAsked
		}
	}), limits(32, 256), r.attempts(2))
	msgs := unkeyed("m", n)
	var good, bad []string
	for _, id := range ids(msgs) {
		if poison(id) {
			bad = append(bad, id)
		} else {
			good = append(good, id)
		}
	}
	require.NotEmpty(r, bad)
	r.publish(topic, msgs...)
	in.awaitCounts(transport.Dead, len(bad))
	in.awaitCounts(transport.Handled, len(good))
	in.stopped()
	l.onceEach(good)
	require.ElementsMatch(r, bad, deliveryIDs(r.dead(topic, group, len(bad))))
	r.nothingLeft(topic, group)
}

// deadFields: a dead letter is the message as it was received, and says
// where it came from and what happened to it.
func deadFields(r *rig) {
	topic, group := r.topic()
	var mu sync.Mutex
	received := map[string]*transport.Delivery{}
	in := r.instance()
	in.run(topic, group, func(m *message.Message) ([]*message.Message, error) {
		d := transport.AttemptFrom(m.Context()).Delivery()
		mu.Lock()
		received[m.UUID] = d
		mu.Unlock()
		if m.UUID == "long" {
			return nil, errors.New(strings.Repeat("a long story. ", 1<<16))
		}
		panic(errors.New("of my own"))
	}, r.attempts(3))
	began := time.Now()
	sent := map[string]*message.Message{}
	for _, id := range []string{"panic", "long"} {
		m := msg(id, "key of "+id)
		m.Payload = message.Payload("\x00\xff\xfe" + strings.Repeat("body", 1000))
		m.Metadata["trace"], m.Metadata["empty"], m.Metadata["größe"] = "1-2-3", "", "日本"
		sent[id] = &message.Message{UUID: id, Payload: message.Payload(string(m.Payload)), Metadata: maps.Clone(m.Metadata)}
		r.publish(topic, m)
	}
	in.awaitCounts(transport.Dead, 2)
	in.stopped()
	for _, d := range r.dead(topic, group, 2) {
		was, orig := received[d.ID], sent[d.ID]
		require.NotNil(r, was, d.ID)
		require.Equal(r, string(orig.Payload), string(d.Payload))
		require.Equal(r, orig.Metadata[transport.KeyHeader], d.Key)
		h := d.Headers.Map()
		added := maps.Clone(h)
		for k, v := range orig.Metadata {
			require.Equal(r, v, h[k], "header %q", k)
			delete(added, k)
		}
		for k := range added {
			require.True(r, strings.HasPrefix(k, "leat_") || strings.HasSuffix(k, "_poisoned"), "header %q was added", k)
		}
		for k, want := range map[string]string{
			transport.DeadVersionHeader:  "1",
			transport.DeadReasonHeader:   transport.ReasonExhausted,
			transport.DeadTopicHeader:    topic,
			transport.DeadCoordsHeader:   was.Coordinates(),
			transport.DeadGroupHeader:    group,
			transport.DeadConsumerHeader: "c",
			transport.DeadInstanceHeader: in.name,
			transport.DeadAttemptsHeader: strconv.Itoa(3),
			"topic_poisoned":             topic,
			"handler_poisoned":           "c",
			"subscriber_poisoned":        group,
		} {
			require.Equal(r, want, h[k], k)
		}
		if !was.Enqueued.IsZero() {
			require.Equal(r, was.Enqueued.UTC().Format(time.RFC3339Nano), h[transport.DeadEnqueuedHeader])
		}
		first, last := timeOf(r, h[transport.DeadFirstHeader]), timeOf(r, h[transport.DeadLastHeader])
		require.False(r, first.Before(began.Add(-time.Second)), "first failure at %v", first) // which a broker may have kept
		require.True(r, last.After(first), "last failure at %v, the first at %v", last, first)
		if d.ID == "panic" {
			require.Equal(r, "panic", h[transport.DeadClassHeader])
			require.Contains(r, h[transport.DeadErrorHeader], "of my own")
			require.Contains(r, h[transport.DeadStackHeader], "deadFields")
			continue
		}
		require.Equal(r, "errors.errorString", h[transport.DeadClassHeader])
		require.LessOrEqual(r, len(h[transport.DeadErrorHeader]), 1<<10)
		require.NotContains(r, h, transport.DeadStackHeader)
	}
}

func timeOf(r *rig, text string) time.Time {
	r.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(r, err)
	return at
}

// deadOrder: a long row of poison is buried in the order of its keys, and what
// is behind it is reached.
func deadOrder(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		if strings.HasPrefix(m.UUID, "good") {
			return nil, nil
		}
		return nil, errAsAsked
	}), byKey, limits(16, 256), r.attempts(2))
	msgs := keyed(20, r.o.scale(10, 25, 100))
	r.publish(topic, msgs...)
	r.publish(topic, msg("good", "k0"))
	l.awaitDone(1)
	in.awaitCounts(transport.Dead, len(msgs))
	in.stopped()
	l.inOrder("good")
	last := map[string]string{}
	for _, d := range r.dead(topic, group, len(msgs)) {
		require.Less(r, last[d.Key], d.ID, "dead letters of key %q", d.Key)
		last[d.Key] = d.ID
	}
	r.nothingLeft(topic, group)
}

// deadLetterAway: while the dead letter takes nothing, its message stays with
// the broker and nothing else waits for it; then it is buried once.
func deadLetterAway(r *rig) {
	topic, group := r.topic()
	dead := r.deadTopic(topic, group)
	var o outage
	l := newLedger(r)
	in := r.instance(o.wrap)
	o.setClosed(dead, true)
	in.run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		if m.UUID == "poison" {
			return nil, handlers.Permanent(errAsAsked)
		}
		return nil, nil
	}))
	r.publish(topic, msg("poison", "a"))
	in.eventually("the dead letter was tried", func() bool { return o.failures(dead) >= 2 }, func() any { return in.status() })
	good := unkeyed("good", 100)
	r.publish(topic, good...)
	l.awaitDone(len(good))
	require.Zero(r, in.count(transport.Dead))
	in.await("the status says so", func(s runtime.Status) bool { return s.State == runtime.StateBlocked })
	if r.caps.Depth {
		r.eventually("one message is left with the broker", func() bool { return in.waiting(topic, group) == 1 }, func() any { return in.waiting(topic, group) })
	}
	o.setClosed(dead, false)
	in.awaitCounts(transport.Dead, 1)
	in.stopped()
	require.Equal(r, []int{1}, l.attemptsOf("poison"), "the handler ran again for its dead letter")
	r.dead(topic, group, 1)
	r.nothingLeft(topic, group)
}

// outputsAway: the same for what a handler emits.
func outputsAway(r *rig) {
	topic, group := r.topic()
	to := r.name("emitted")
	r.declare(transport.Declaration{Topic: to, Group: "reader-" + group})
	var o outage
	l := newLedger(r)
	in := r.instance(o.wrap)
	o.setClosed(to, true)
	in.run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		return nil, handlers.Emit(m.Context(), to, "from "+m.UUID)
	}))
	r.publish(topic, msg("m", "a"))
	in.eventually("the output was tried", func() bool { return o.failures(to) >= 2 }, func() any { return in.status() })
	require.Zero(r, in.count(transport.Handled))
	o.setClosed(to, false)
	in.awaitCounts(transport.Handled, 1)
	in.stopped()
	require.Equal(r, []int{1}, l.attemptsOf("m"), "the handler ran again for its output")
	require.JSONEq(r, `"from m"`, string(r.read(to, "reader-"+group, 1)[0].Payload))
	r.nothingLeft(topic, group)
}

// waiting is how many messages of a group are not acked.
func (in *instance) waiting(topic, group string) int {
	in.Helper()
	ctx, cancel := in.within()
	defer cancel()
	d, err := in.tr.Depth(ctx, topic, group) // its own: not every broker tells what others hold
	require.NoError(in, err)
	return int(d.Ready + d.Delayed + d.Held)
}
