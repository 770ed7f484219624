package transporttest

import (
	"fmt"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// keyOrder: messages of a key come as they were published, one by one or many
// at once, and over all members where that is declared.
func keyOrder(r *rig) {
	const keys, rounds = 20, 5
	per := r.scale(4, 10, 100)
	s := r.stream()
	l := newLedger(r)
	l.work(s.join(r.tr))
	if r.caps.KeyOrder == transport.ScopeGroup {
		l.work(s.join(r.connect()))
	}
	want := make([][]string, keys)
	var wg sync.WaitGroup
	for k := range keys {
		for i := range rounds * per {
			want[k] = append(want[k], fmt.Sprintf("%d-%03d", k, i))
		}
		ctx, cancel := r.within()
		defer cancel()
		wg.Go(func() {
			key := fmt.Sprint("key-", k)
			for i := 0; i < len(want[k]); {
				n := 1 + (i+k)%7 // in one call
				batch := want[k][i:min(i+n, len(want[k]))]
				i += len(batch)
				if err := s.pub.Publish(ctx, s.topic, messages(key, batch)...); err != nil {
					r.Errorf("publish %v: %v", batch, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		l.await(want[k])
	}
	for k := range keys {
		l.inOrder(fmt.Sprint("key-", k), want[k])
	}
}

// releaseOrder: what is given back comes again at its place, while what lay
// between is kept.
func releaseOrder(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 6)
	ds := m.receive(6)
	m.settle(transport.Release, ds[4], ds[1])
	s.send("n", "k", 2)
	some := m.receive(4)
	require.Equal(r, []string{"m-1", "m-4", "n-0", "n-1"}, ids(some))
	m.settle(transport.Release, ds[5], ds[0])
	m.settle(transport.Release, some[2], ds[3])
	require.Equal(r, []string{"m-0", "m-3", "m-5", "n-0"}, ids(m.receive(4)))
	m.quiet()
}

// orderAfterClose: whoever takes over goes on where the order stands.
func orderAfterClose(r *rig) {
	s := r.stream()
	a := s.join(r.tr)
	want := s.send("m", "k", 20)
	ds := a.receive(12)
	a.settle(transport.Ack, ds[:5]...)
	a.close()
	b := s.join(r.connect())
	want = append(want, s.send("n", "k", 5)...)
	require.Equal(r, want[5:], ids(b.receive(20)))
	b.quiet()
}

// orderAfterKill is the same where nobody said goodbye.
func orderAfterKill(r *rig) {
	s := r.stream()
	a := s.join(r.tr)
	want := s.send("m", "k", 20)
	ds := a.receive(12)
	a.settle(transport.Ack, ds[:5]...)
	a.kill()
	b := s.join(r.connect())
	want = append(want, s.send("n", "k", 5)...)
	require.Equal(r, want[5:], ids(b.takeOver(20)))
	b.quiet()
}
