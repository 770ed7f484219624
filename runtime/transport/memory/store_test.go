package memory_test

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// sized is message i, of a size that no neighbour has: bodies and headers from
// nothing to more than what is kept together.
func sized(i int) *message.Message {
	m := msg(fmt.Sprint("id-", i), fmt.Sprint("key-", i%7))
	switch i % 5 {
	case 0:
		m.Payload = message.Payload(strings.Repeat(string(rune('a'+i%26)), i*i))
	case 1:
		m.Metadata["long"] = strings.Repeat("x", 100*i)
	case 2:
		m.Payload = nil
	case 3:
		m.Payload = message.Payload{}
	}
	return m
}

// Deliveries show the messages as they were published, whatever comes after
// them and is done with before them, and one that grows harms no other.
func TestStore(t *testing.T) {
	t.Parallel()
	const n = 300
	r := newRig(t, memory.Options{Partitions: 2, Retain: -1})
	c := r.open()
	var ds []*transport.Delivery
	for i := range n {
		require.NoError(t, r.pub.Publish(t.Context(), topicName, sized(i)))
		if i%50 == 49 {
			ds = append(ds, r.receiveAll(c, 50)...)
			r.settle(c, transport.Ack, ds[len(ds)-50:len(ds)-10]...)
		}
	}
	for _, d := range ds {
		_ = append(d.Payload, "beyond its end"...)
	}
	require.Len(t, ds, n)
	for _, d := range ds {
		var i int
		_, err := fmt.Sscanf(d.ID, "id-%d", &i)
		require.NoError(t, err)
		want := sized(i)
		require.Equal(t, want.Payload == nil, d.Payload == nil, d.ID)
		require.Equal(t, string(want.Payload), string(d.Payload), d.ID)
		require.Equal(t, map[string]string(want.Metadata), d.Headers.Map(), d.ID)
		require.Equal(t, d.Size(), int64(len(want.Payload)+len(d.ID)+sizeOf(want.Metadata)), d.ID)
	}
	r.settle(c, transport.Ack, ds...)
	require.Empty(t, r.broker.Messages(topicName))
	require.Equal(t, transport.Depth{}, r.depth())

	r.publish("after", "k", 3)
	require.Equal(t, []string{"after0", "after1", "after2"}, ids(r.receiveAll(c, 3)))
}

func sizeOf(md message.Metadata) (n int) {
	for k, v := range md {
		n += len(k) + len(v)
	}
	return n
}

// A large message that is done with is gone at once, though it was published
// together with small ones that are not.
func TestStoreDropsLargeBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, memory.Options{Partitions: 1, Retain: -1})
	c := r.open()
	large, small := msg("large", "k"), msg("small", "k")
	large.Payload = make([]byte, 1<<20)
	require.NoError(t, r.pub.Publish(t.Context(), topicName, large, small))
	ds := r.receiveAll(c, 2)
	kept := weak.Make(&ds[0].Payload[0])
	require.NotNil(t, kept.Value())
	r.settle(c, transport.Ack, ds[0])
	ds[0] = nil
	goruntime.GC()
	require.Nil(t, kept.Value())
	require.Equal(t, "body of small", string(ds[1].Payload))
}

// What is kept after every group is done with it is the end of the topic, whole.
func TestStoreKeepsItsEnd(t *testing.T) {
	t.Parallel()
	const n, keep = 200, 20
	r := newRig(t, memory.Options{Partitions: 1, Retain: keep})
	c := r.open()
	var want []string
	for i := range n {
		require.NoError(t, r.pub.Publish(t.Context(), topicName, sized(i)))
		want = append(want, fmt.Sprintf("id-%d %q", i, sized(i).Payload))
	}
	ds := r.receiveAll(c, n)
	slices.Reverse(ds)
	r.settle(c, transport.Ack, ds...)
	var got []string
	for _, m := range r.broker.Messages(topicName) {
		got = append(got, fmt.Sprintf("%s %q", m.UUID, m.Payload))
	}
	require.Equal(t, want[n-keep:], got)
}
