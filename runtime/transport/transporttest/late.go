package transporttest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// lateCommit: a transaction that commits after later ones were read is read
// whenever it commits, and stalls nobody until then.
func lateCommit(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	before := s.spread("before", 20)
	commit := r.broker.PublishLater(r.TB, s.topic, msg("late-0", "before-0"), msg("late-1", "before-1"))
	after := s.spread("after", 20)
	ds := m.receive(40)
	require.ElementsMatch(r, append(before, after...), ids(ds))
	m.settle(transport.Ack, ds[:30]...)
	m.quiet()
	commit()
	late := m.receive(2)
	require.ElementsMatch(r, []string{"late-0", "late-1"}, ids(late))
	m.settle(transport.Ack, append(late, ds[30:]...)...)
	m.quiet()
	m.reopen()
	m.quiet()
}

// commitOrder: transactions that commit in the reverse of their order are all
// read, and what is held meanwhile is not read again.
func commitOrder(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	var commits []func()
	var want []string
	for i, key := range []string{"a", "b", "c", "a", "b"} {
		id := string(rune('0' + i))
		want = append(want, id)
		commits = append(commits, r.broker.PublishLater(r.TB, s.topic, msg(id, key)))
	}
	var all []*transport.Delivery
	for i, commit := range slices.Backward(commits) {
		commit()
		ds := m.receive(1)
		require.Equal(r, want[i:i+1], ids(ds))
		all = append(all, ds...)
	}
	m.quiet()
	m.settle(transport.Ack, all...)
	m.quiet()
}

// groupDuringCommit: a group that comes while a publisher's transaction is
// open misses nothing of it, and waits for nobody.
func groupDuringCommit(r *rig) {
	s := r.stream()
	commit := r.broker.PublishLater(r.TB, s.topic, msg("late", "k"))
	m := s.joinAs(r.name("new"))
	want := s.send("m", "k", 3)
	ds := m.receive(3)
	r.all(want, ds)
	m.settle(transport.Ack, ds...)
	commit()
	require.Equal(r, []string{"late"}, ids(m.receive(1)))
	m.quiet()
}
