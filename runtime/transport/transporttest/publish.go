package transporttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// honestPublish: what Publish says nil to can be read, and what cannot be read
// has an error.
func honestPublish(r *rig) {
	pub := r.producer(r.tr)
	within, cancel := r.within()
	defer cancel()
	require.NoError(r, pub.Publish(within, r.name("nothing")), "publish of no messages")

	undeclared := r.name("undeclared")
	batch := []*message.Message{msg("m-0", "k"), msg("m-1", "k"), msg("m-2", "k")}
	r.readable(undeclared, batch, pub.Publish(within, undeclared, batch...))

	for _, bad := range illegalNames() {
		err := pub.Publish(within, bad, batch...)
		require.Error(r, err, "published to %q", bad)
		if pe, ok := errors.AsType[*transport.PublishError](err); ok {
			require.Len(r, pe.Failed, len(batch), "none was published")
			for _, f := range pe.Failed {
				require.True(r, f.Permanent, "no later try can help a name: %v", f.Err)
			}
		}
	}

	over, end := context.WithCancel(within)
	end()
	s := r.stream()
	r.readable(s.topic, batch, s.pub.Publish(over, s.topic, batch...))

	closed := r.producer(r.tr)
	require.NoError(r, closed.Close(within))
	require.Error(r, closed.Publish(within, s.topic, batch...), "published after Close")
}

// tooLarge: what the broker does not take is refused for good, by name, and
// keeps nothing else away.
func tooLarge(r *rig) {
	s := r.stream()
	large := msg("large", "k")
	large.Payload = make([]byte, r.broker.Oversize)
	batch := []*message.Message{msg("m-0", "k"), large, msg("m-1", "k")}
	ctx, cancel := r.within()
	defer cancel()
	for range 2 { // and its connection is no worse for it
		err := s.pub.Publish(ctx, s.topic, batch...)
		var pe *transport.PublishError
		require.ErrorAs(r, err, &pe)
		failed := false
		for _, f := range pe.Failed {
			if f.Index == 1 {
				failed = true
				require.True(r, f.Permanent, "no later try can help what is too large: %v", f.Err)
			} else {
				require.False(r, f.Permanent, "message %d is not too large: %v", f.Index, f.Err)
			}
		}
		require.True(r, failed, "%v", err)
	}
	m := s.join(r.tr)
	good := s.send("good", "k", 3)
	var came []string
	for len(good) > 0 { // what came with it may be there once for each try
		d := m.receive(1)[0]
		came = append(came, d.ID)
		good = slices.DeleteFunc(good, func(id string) bool { return id == d.ID })
		m.settle(transport.Ack, d)
	}
	require.NotContains(r, came, "large")
}

// givenUp: a message is its caller's again when Publish has returned, also where
// that did not wait for what is under way.
func givenUp(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	var mu sync.Mutex
	sent, wanted := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for i := range r.scale(20, 50, 500) {
				id := fmt.Sprintf("m-%d-%d", p, i)
				out := msg(id, id)
				ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), rand.N(giveUp)) //nolint:gosec // guards nothing
				err := s.pub.Publish(ctx, s.topic, out)
				cancel()
				copy(out.Payload, "changed")
				out.UUID, out.Metadata[transport.KeyHeader] = "changed", "changed"
				mu.Lock()
				sent[id] = true
				if err == nil {
					wanted[id] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	came := func(ds ...*transport.Delivery) {
		for _, d := range ds {
			require.True(r, sent[d.ID], "%q was never published", d.ID)
			require.Equal(r, "body of "+d.ID, string(d.Payload))
			require.Equal(r, d.ID, d.Key)
			delete(wanted, d.ID)
		}
		m.settle(transport.Ack, ds...)
	}
	for len(wanted) > 0 {
		came(m.receive(1)...)
	}
	for { // what was given up may come or not
		ctx, cancel := context.WithTimeout(r.Context(), r.o.Quiet)
		ds, err := m.Receive(ctx, maxLimit, maxBytes)
		cancel()
		if err != nil {
			require.ErrorIs(r, err, context.DeadlineExceeded)
			return
		}
		came(ds...)
	}
}

// giveUp is about as long as it takes to publish a message.
const giveUp = 4 * time.Millisecond

// readable checks that those are in the topic that err says nothing of.
func (r *rig) readable(topic string, batch []*message.Message, err error) {
	r.Helper()
	failed := map[int]bool{}
	var pe *transport.PublishError
	switch {
	case errors.As(err, &pe):
		for _, f := range pe.Failed {
			require.False(r, failed[f.Index], "message %d has failed twice", f.Index)
			require.Less(r, f.Index, len(batch), "index of a failed message")
			require.Error(r, f.Err)
			failed[f.Index] = true
		}
		require.NotEmpty(r, failed, "an error that names no message")
	case err != nil:
		return // nothing is known
	}
	m := r.member(r.tr, func(c *transport.ConsumerConfig) {
		c.Topics, c.Group = []string{topic}, r.name("reader")
	})
	var want []string
	for i, msg := range batch {
		if !failed[i] {
			want = append(want, msg.UUID)
		}
	}
	r.all(want, m.receive(len(want)))
	m.quiet()
}

// deadLetterKept: a dead letter holds what it gets until somebody reads it.
func deadLetterKept(r *rig) {
	topic := r.name("dead")
	require.NoError(r, r.declare(transport.TopologyDeclare, transport.Declaration{Topic: topic, DeadLetter: true}))
	pub := r.producer(r.tr)
	batch := []*message.Message{msg("m-0", "k"), msg("m-1", "k"), msg("m-2", "k")}
	ctx, cancel := r.within()
	defer cancel()
	err := pub.Publish(ctx, topic, batch...)
	require.NoError(r, err, "publish to a dead letter that no group reads")
	r.readable(topic, batch, nil)
}
