package transporttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

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

// lateUnderLoad: a transaction that commits long after others that began
// later, while those are read and settled without a pause, is read soon after
// its commit; nothing that was settled comes again by it.
func lateUnderLoad(r *rig) { r.commitLate(func(*ledger, string, []string) {}) }

// lateOrder: what it brings comes before all of its key that is published
// after its commit.
func lateOrder(r *rig) {
	r.commitLate(func(l *ledger, key string, want []string) { l.inOrder(key, want) })
}

func (r *rig) commitLate(check func(l *ledger, key string, want []string)) {
	s := r.stream()
	l := newLedger(r)
	l.work(s.join(r.tr))
	var want []string
	for round := range r.scale(2, 3, 2) {
		key := fmt.Sprint("key-", round)
		late := []string{fmt.Sprintf("late-%d-0", round), fmt.Sprintf("late-%d-1", round)}
		commit := r.broker.PublishLater(r.TB, s.topic, messages(key, late)...)
		open := time.NewTimer(r.held())
		for i, busy := 0, true; busy; i++ {
			want = append(want, s.spread(fmt.Sprintf("load-%d-%d", round, i), 10)...)
			select {
			case <-open.C:
				busy = false
			case <-time.After(r.o.Quiet / 10):
			}
		}
		open.Stop()
		commit()
		ofKey := slices.Concat(late, s.send(fmt.Sprint("after-", round), key, 5))
		l.await(ofKey)
		check(l, key, ofKey)
		want = append(want, ofKey...)
	}
	l.await(want)
	r.rest(r.o.Quiet)
	l.once(want)
}

// held is how long a transaction stays open.
func (r *rig) held() time.Duration {
	switch {
	case r.o.Soak:
		return time.Minute
	case r.o.Short:
		return 5 * r.o.Quiet
	default:
		return 10 * r.o.Quiet
	}
}

// lateGroups: a group that comes while many publishers have transactions open
// misses none of them, whichever commits first.
func lateGroups(r *rig) {
	const publishers = 10
	s := r.stream()
	var want []string
	var commits []func()
	for i := range publishers {
		id := fmt.Sprint("late-", i)
		want = append(want, id)
		commits = append(commits, r.broker.PublishLater(r.TB, s.topic, msg(id, id)))
	}
	m := &member{r: r, tr: r.tr, cfg: r.config(func(c *transport.ConsumerConfig) {
		c.Topics, c.Group = []string{s.topic}, r.name("new")
	})}
	joined := make(chan error, 1)
	go func() {
		ctx, cancel := r.withinTakeover()
		defer cancel()
		c, err := r.tr.OpenConsumer(ctx, m.cfg)
		m.Consumer = c
		joined <- err
	}()
	for _, i := range rand.Perm(publishers) { //nolint:gosec // shuffles
		commits[i]()
		r.rest(r.o.Quiet / 10)
	}
	require.NoError(r, <-joined)
	r.Cleanup(m.close)
	want = append(want, s.spread("after", 5)...)
	ds := m.receive(len(want))
	r.all(want, ds)
	m.settle(transport.Ack, ds...)
	m.quiet()
	first := s.join(r.tr)
	r.all(want, first.receive(len(want)))
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
