package transporttest

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// limit: no Receive gives more than it was asked for.
func limit(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.spread("m", 60)
	ctx, cancel := r.within()
	defer cancel()
	var all []*transport.Delivery
	for i := 0; len(all) < len(want); i++ {
		n := 1 + i%7
		ds, err := m.Receive(ctx, n, maxBytes)
		require.NoError(r, err)
		require.LessOrEqual(r, len(ds), n, "limit of Receive")
		all = append(all, ds...)
	}
	require.ElementsMatch(r, want, ids(all))
	m.quiet()
}

// byteWindow: no Receive gives more bytes than it was asked for. What is too
// large says how much it needs, after what fits before it.
func byteWindow(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	sizes := []int{100, 200, 5000, 100, 1, 3000, 3000, 10, 70000, 10}
	for i, n := range sizes {
		big := msg(fmt.Sprint("m-", i), "k")
		big.Payload = make([]byte, n)
		r.publish(s.pub, s.topic, big)
	}
	const ask = 1000
	ctx, cancel := r.within()
	defer cancel()
	var all []*transport.Delivery
	for bytes := int64(ask); len(all) < len(sizes); {
		ds, err := m.Receive(ctx, maxLimit, bytes)
		if need, ok := errors.AsType[transport.NeedBytes](err); ok {
			require.Empty(r, ds)
			require.Equal(r, int64(ask), bytes, "as many bytes as were needed are not enough")
			require.Greater(r, int64(need), bytes, "needs more than it was offered")
			require.LessOrEqual(r, int64(need), int64(sizes[len(all)])+1000, "needs what the next message has")
			bytes = int64(need)
			continue
		}
		require.NoError(r, err)
		sum := int64(0)
		for _, d := range ds {
			sum += d.Size()
		}
		require.LessOrEqual(r, sum, bytes, "bytes of one Receive")
		all = append(all, ds...)
		bytes = ask
	}
	for i, d := range all {
		require.Len(r, d.Payload, sizes[i], "%s came in place of m-%d", d.ID, i)
	}
	m.quiet()
}

// pause: nothing more of an assignment comes while it is paused; the others
// go on.
func pause(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.spread("key", 24)
	first := m.receive(24)
	m.settle(transport.Ack, first...)
	paused := first[0].Assignment
	var open, shut []string
	m.Pause(paused)
	m.Pause(paused)
	for _, d := range first {
		id := "again " + d.ID
		if d.Assignment == paused {
			shut = append(shut, id)
		} else {
			open = append(open, id)
		}
		r.publish(s.pub, s.topic, msg(id, d.Key))
	}
	ds := m.receive(len(open))
	require.ElementsMatch(r, open, ids(ds), "of assignments that are not paused")
	m.settle(transport.Ack, ds...)
	m.quiet()
	m.Resume(paused)
	ds = m.receive(len(shut))
	r.all(shut, ds)
	m.settle(transport.Ack, ds...)
	m.quiet()
	m.reopen()
	m.Pause(paused) // is over: nothing happens
	m.Resume(paused)
	m.quiet()
}
