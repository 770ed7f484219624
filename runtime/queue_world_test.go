package runtime

import (
	"context"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

// held is what the model knows of one item: it is held from admit until it is
// done, absorbed or given back, and then it is no longer in the model.
type held struct {
	it     *item
	d      *transport.Delivery
	spell  *owned
	lane   string // empty: one of its own
	phase  state  // ready stands for all that has not started
	lost   bool
	leader *held // the orphan it waits for
	tied   bool  // was parked, a leader or a follower: somebody may still refer to it
	fails  int
	since  int // the step from which on it could start; 0: it cannot
}

// oversize tells whether it is larger than the whole credit.
func (m *model) oversize(h *held) bool { return h.d.Size() > m.q.maxBytes }

// owned is a spell.
type owned struct {
	a       *transport.Assignment
	sp      *spell // nil before its first delivery
	leaving bool
}

// model is a queue as plain lists that are searched from the start each time.
type model struct {
	q        *queue
	byLetter bool
	held     []*held // in the order they came

	spells  []*owned // the queue knows them, or will at their first delivery
	ended   []*owned // it has forgotten them
	orphans []*held  // in the order they were lost
	exempt  *held    // parked, and its bytes do not count

	sent    []*transport.Delivery // every message once
	back    []*transport.Delivery // those that the broker has again
	session uint64
	offset  int64
	step    int
}

func newModel(t *rapid.T, order transport.Order) *model {
	p := transport.Policy{
		Order:         order,
		Prefetch:      rapid.SampledFrom([]int{16, 3, 8, 1, 2, 40}).Draw(t, "prefetch"),
		PrefetchBytes: rapid.SampledFrom([]int64{80, 500, 30, 1}).Draw(t, "prefetch bytes"),
	}
	m := &model{byLetter: rapid.Bool().Draw(t, "order by the key's first letter"), q: newQueue(p, rapid.Bool().Draw(t, "stable"))}
	m.connect()
	return m
}

// connect begins a session that owns all partitions.
func (m *model) connect() {
	m.session++
	for _, topic := range []string{"t", "u"} {
		for partition := range int32(2) {
			m.begin(topic, partition)
		}
	}
}

func (m *model) begin(topic string, partition int32) {
	m.spells = append(m.spells, &owned{a: transport.NewAssignment(context.Background(), topic, partition)})
}

// keyOf is what the lane of a delivery goes by.
func (m *model) keyOf(d *transport.Delivery) string {
	if m.byLetter {
		return d.Key[:min(1, len(d.Key))]
	}
	return d.Key
}

// laneOf names the lane of a delivery.
func (m *model) laneOf(d *transport.Delivery) string {
	key := m.keyOf(d)
	switch {
	case m.q.order == transport.OrderPartition:
		return fmt.Sprint(d.Topic, "/", d.Partition, "/")
	case m.q.order == transport.OrderKey && key != "":
		return fmt.Sprint(d.Topic, "/", d.Partition, "/", key)
	default:
		return ""
	}
}

// head is the item of a lane that came first: the only one that may have started.
func (m *model) head(lane string) *held {
	i := slices.IndexFunc(m.held, func(h *held) bool { return h.lane == lane })
	return m.held[i]
}

// startable tells whether nothing holds an item back.
func (m *model) startable(h *held) bool {
	return h.phase == ready && h.leader == nil && (h.lane == "" || m.head(h.lane) == h)
}

func (m *model) follower(h *held) *held {
	for _, f := range m.held {
		if f.leader == h {
			return f
		}
	}
	return nil
}

func (m *model) bytes() (n int64) {
	for _, h := range m.held {
		if h != m.exempt {
			n += h.d.Size()
		}
	}
	return n
}

// own begins one more spell, perhaps beside another of the same partition.
func (m *model) own(t *rapid.T) {
	if len(m.spells) > 8 {
		t.Skip("enough of them")
	}
	m.begin(rapid.SampledFrom([]string{"t", "u"}).Draw(t, "topic"), rapid.Int32Range(0, 1).Draw(t, "partition"))
}

func (m *model) pickSpell(t *rapid.T, from []*owned) *owned {
	if len(from) == 0 {
		t.Skip("no spell")
	}
	return rapid.SampledFrom(from).Draw(t, "spell")
}

func (m *model) pick(t *rapid.T, phases ...state) *held {
	var some []*held
	for _, h := range m.held {
		if slices.Contains(phases, h.phase) {
			some = append(some, h)
		}
	}
	if len(some) == 0 {
		t.Skip("no item")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "item")]
}
