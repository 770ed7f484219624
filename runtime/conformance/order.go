package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

var errAsAsked = errors.New("as asked")

// members starts as many instances as the broker keeps the order of a key
// over: two, or one. Each has its share when they are returned: one that is
// still joining would take a partition from handlers that outlast the handover.
func (r *rig) members(topic, group string, h message.HandlerFunc, change ...func(*transport.Policy)) []*instance {
	r.Helper()
	h = passing(h)
	ms := []*instance{r.instance().run(topic, group, h, change...)}
	if r.caps.KeyOrder == transport.ScopeGroup {
		ms = append(ms, r.instance().run(topic, group, h, change...))
	}
	published := 0
	r.eventually("each member has its share", func() bool {
		handled, idle := 0, false
		for _, in := range ms {
			n := in.count(transport.Handled)
			handled, idle = handled+n, idle || n == 0
		}
		if handled >= published && idle {
			scouts := prefixed(fmt.Sprint(scout, published, "-"), keyed(16, 1))
			published += len(scouts)
			r.publish(topic, scouts...)
		}
		return handled >= published && !idle
	}, func() any { return fmt.Sprintf("%d scouts, %+v", published, ms[0].status()) })
	return ms
}

// scout begins the ids of messages that tell who handles anything.
const scout = "scout-"

// passing has a handler not see them.
func passing(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		if strings.HasPrefix(m.UUID, scout) {
			return nil, nil
		}
		return h(m)
	}
}

// eachOnce: without faults every message is handled, once, and nothing else is.
func eachOnce(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	in := r.instance().run(topic, group, l.noting(ok), limits(16, 32))
	msgs := unkeyed("m", r.o.scale(500, 1000, 20_000))
	r.publish(topic, msgs...)
	l.awaitDone(len(msgs))
	in.awaitCounts(transport.Handled, len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	l.ranOnce()
	in.counted(map[transport.Outcome]int{transport.Handled: len(msgs)})
	r.nothingLeft(topic, group)
}

// keyOrder: one message of a key at a time, in the order of publishing, keys
// side by side.
func keyOrder(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	h := l.noting(func(m *message.Message) ([]*message.Message, error) {
		return nil, work(m, rand.N(time.Millisecond)) //nolint:gosec // shuffles
	})
	ms := r.members(topic, group, h, byKey, limits(32, 256))
	msgs := keyed(50, r.o.scale(10, 20, 200))
	r.publish(topic, msgs...)
	l.awaitDone(len(msgs))
	for _, in := range ms {
		in.stopped()
	}
	l.onceEach(ids(msgs))
	l.ranOnce()
	l.inOrder()
	require.Greater(r, l.most, 1, "keys do not run side by side")
}

// keyOrderWithRetries: what is behind a failing message of its key waits for
// it, however often that fails; other keys go on meanwhile.
func keyOrderWithRetries(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	const keys, stuck = 40, "k0/00000"
	n := r.o.scale(10, 15, 200)
	var others atomic.Int64
	h := l.noting(func(m *message.Message) ([]*message.Message, error) {
		a := transport.AttemptFrom(m.Context())
		if m.UUID == stuck && others.Load() < int64((keys-1)*n) {
			return nil, errAsAsked // until all other keys are done
		}
		if sum := checksum(m.UUID); m.UUID != stuck && sum%20 == 0 && a.Number() <= 1+sum/20%3 {
			return nil, errAsAsked
		}
		if a.Delivery().Key != "k0" {
			others.Add(1)
		}
		return nil, nil
	})
	in := r.instance().run(topic, group, h, byKey, limits(16, 1024), r.attempts(transport.Unlimited))
	msgs := keyed(keys, n)
	r.publish(topic, msgs...)
	l.awaitDone(len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	l.inOrder()
	require.Greater(r, len(l.runsOf(stuck)), 1, "the message did not fail")
}

// checksum spreads ids.
func checksum(id string) int {
	sum := 7
	for i := range len(id) {
		sum = (sum*31 + int(id[i])) % 1_000_003
	}
	return sum
}

// pausedReader: while all handlers are held up for several times as long as it
// takes to give a member up, nothing is given to another or skipped.
func pausedReader(r *rig) {
	topic, group := r.topic()
	l := newLedger(r)
	g := newGate(r)
	h := l.noting(func(m *message.Message) ([]*message.Message, error) { return nil, g.wait(m) })
	ms := r.members(topic, group, h, byKey, limits(4, 16))
	msgs := keyed(50, r.o.scale(4, 4, 20))
	r.publish(topic, msgs...)
	l.awaitRunning(4)
	r.rest(3 * r.o.Takeover)
	g.open()
	l.awaitDone(len(msgs))
	for _, in := range ms {
		in.stopped()
	}
	l.onceEach(ids(msgs))
	l.ranOnce()
	l.inOrder()
	r.nothingLeft(topic, group)
}
