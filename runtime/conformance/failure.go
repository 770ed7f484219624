package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// attempts: a message is tried as often as it may be, each attempt has its
// number, and the last failure makes it dead.
func attempts(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	const most = 4
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		var k int
		_, _ = fmt.Sscanf(m.UUID, "fails-%d", &k)
		if transport.AttemptFrom(m.Context()).Number() <= k {
			return nil, errAsAsked
		}
		return nil, nil
	}), r.attempts(most))
	msgs := unkeyed("fails", most+1)
	r.publish(topic, msgs...)
	in.awaitCounts(transport.Dead, 1)
	l.awaitDone(most)
	in.stopped()
	numbers := []int{1, 2, 3, 4}
	for k := range most {
		require.Equal(r, numbers[:k+1], l.attemptsOf(msgs[k].UUID), msgs[k].UUID)
	}
	require.Equal(r, numbers, l.attemptsOf(msgs[most].UUID))
	require.Equal(r, []string{msgs[most].UUID}, deliveryIDs(r.dead(topic, group, 1)))
	in.counted(map[transport.Outcome]int{transport.Handled: most, transport.Retried: 1 + 2 + 3 + 3, transport.Dead: 1})
	r.nothingLeft(topic, group)
}

// panics: a panic of any kind, and Goexit, is a failed attempt; the worker
// lives, and the dead letter says where it was.
func panics(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	kinds := map[string]func(){
		"panic-error": func() { panic(errAsAsked) },
		"panic-value": func() { panic(struct{ a, b int }{1, 2}) },
		"panic-nil":   func() { panic(nil) }, //nolint:govet // what a handler may do
		"nil-map":     func() { none[map[string]int]()["x"] = 1 },
		"nil-pointer": func() { none[*message.Message]().UUID = "x" },
		"goexit":      goruntime.Goexit,
	}
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		if fail := kinds[m.UUID]; fail != nil {
			fail()
		}
		return nil, nil
	}), r.attempts(2), limits(1, 8))
	for id := range kinds {
		r.publish(topic, msg(id, ""))
	}
	in.awaitCounts(transport.Dead, len(kinds))
	r.publish(topic, msg("after", ""))
	l.awaitDone(1)
	in.stopped()
	l.onceEach([]string{"after"})
	for _, d := range r.dead(topic, group, len(kinds)) {
		require.Contains(r, kinds, d.ID)
		require.Equal(r, []int{1, 2}, l.attemptsOf(d.ID), d.ID)
		require.Equal(r, transport.ReasonExhausted, d.Headers.Get(transport.DeadReasonHeader), d.ID)
		require.Equal(r, "panic", d.Headers.Get(transport.DeadClassHeader), d.ID)
		if d.ID != "goexit" { // which leaves no stack
			stack := d.Headers.Get(transport.DeadStackHeader)
			require.Contains(r, stack, "conformance", d.ID)
			require.LessOrEqual(r, len(stack), 4<<10, d.ID)
		}
	}
	r.nothingLeft(topic, group)
}

// mutation: whatever a handler does to its message, the next attempt and the
// dead letter have what was received.
func mutation(r *rig) {
	topic, group := r.topic()
	type seen struct {
		id, body string
		metadata message.Metadata
	}
	var saw []seen // by one handler, one after another
	l := newLedger(r)
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		saw = append(saw, seen{m.UUID, string(m.Payload), maps.Clone(m.Metadata)})
		m.UUID = "other"
		m.Metadata["mine"], m.Metadata[transport.KeyHeader] = "1", "other"
		delete(m.Metadata, "theirs")
		for i := range m.Payload {
			m.Payload[i] = 'x'
		}
		m.Payload = append(m.Payload, "more"...)
		return nil, errAsAsked
	}), r.attempts(3), limits(1, 8))
	m := msg("m", "k")
	m.Metadata["theirs"] = "kept"
	want := seen{m.UUID, string(m.Payload), maps.Clone(m.Metadata)}
	r.publish(topic, m)
	in.awaitCounts(transport.Dead, 1)
	in.stopped()
	require.Equal(r, []seen{want, want, want}, saw)
	d := r.dead(topic, group, 1)[0]
	require.Equal(r, want.id, d.ID)
	require.Equal(r, want.body, string(d.Payload))
	require.Equal(r, "k", d.Key)
	require.Equal(r, "kept", d.Headers.Get("theirs"))
	require.NotContains(r, d.Headers.Map(), "mine")
}

// none is a zero value, where a tool does not see that it is.
func none[T any]() (zero T) { return zero }

// permanent: what cannot succeed is tried once, and so is what is to be
// skipped, which is no dead letter.
func permanent(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	decode := handlers.JSON(func(context.Context, map[string]int) error { return nil })
	in := r.instance().run(topic, group, l.noting(func(m *message.Message) ([]*message.Message, error) {
		switch m.UUID {
		case "permanent":
			return nil, fmt.Errorf("wrapped: %w", handlers.Permanent(errors.New("never")))
		case "skip":
			return nil, handlers.Skip("not ours")
		default:
			return decode(m)
		}
	}))
	r.publish(topic, msg("permanent", ""), msg("skip", ""), msg("undecodable", ""))
	in.await("all have ended", func(s runtime.Status) bool {
		return s.Count(transport.Dead) == 2 && s.Count(transport.Skipped) == 1 && s.InFlight == 0
	})
	in.stopped()
	in.counted(map[transport.Outcome]int{transport.Dead: 2, transport.Skipped: 1})
	reasons := map[string]string{}
	for _, d := range r.dead(topic, group, 2) {
		reasons[d.ID] = d.Headers.Get(transport.DeadReasonHeader)
		require.Equal(r, "1", d.Headers.Get(transport.DeadAttemptsHeader))
	}
	require.Equal(r, map[string]string{"permanent": transport.ReasonPermanent, "undecodable": transport.ReasonUndecodable}, reasons)
	for _, id := range []string{"permanent", "skip", "undecodable"} {
		require.Equal(r, []int{1}, l.attemptsOf(id), id)
	}
	r.nothingLeft(topic, group)
}
