package transporttest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// memberJoins: what moves to a member that joins is asked back first, and
// stays with its holder until that has settled it.
func memberJoins(r *rig) {
	s := r.stream()
	a := s.join(r.tr)
	s.spread("m", 64)
	held := a.receive(64)
	l := newLedger(r)
	l.take(a, held)
	left := watch(held)
	require.Greater(r, len(left.of), 1, "assignments of a topic: the suite needs at least 2 partitions")
	a.pump(maxLimit, func(ds []*transport.Delivery) { l.take(a, ds) })
	b := s.join(r.connect())
	l.work(b)

	leaving := left.await(r)
	r.rest(r.o.Quiet)
	require.Empty(r, left.revokedFirst(), "assignments that were revoked without a Leave before")
	l.mu.Lock()
	require.Empty(r, l.doubled, "handed over while outstanding")
	l.mu.Unlock()

	var done, back []*transport.Delivery
	counts := map[*transport.Assignment]int{}
	for _, d := range held {
		if slices.Contains(leaving, d.Assignment) {
			require.NoError(r, d.Assignment.Context().Err(), "the context of what may still run")
			if counts[d.Assignment]++; counts[d.Assignment] == 1 {
				done = append(done, d)
			} else {
				back = append(back, d)
			}
		}
	}
	l.mu.Lock()
	for _, d := range append(done, back...) {
		delete(l.holder, d.ID)
	}
	l.mu.Unlock()
	a.settle(transport.Ack, done...)
	a.settle(transport.Release, back...)
	l.await(ids(back))
	ctx, cancel := r.within()
	defer cancel()
	for _, as := range leaving {
		select {
		case <-as.Context().Done():
			require.ErrorIs(r, context.Cause(as.Context()), transport.ErrRevoked)
		case <-ctx.Done():
			require.FailNow(r, "an assignment that was handed over was not revoked")
		}
	}
	r.rest(r.o.Quiet)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(r, l.doubled, "held by two at once")
	for _, id := range ids(done) {
		require.Zero(r, l.acked[id], "%s was acked before the hand-over and came again", id)
	}
}

// departures notes how assignments end.
type departures struct {
	mu      sync.Mutex
	of      []*transport.Assignment
	leaving []*transport.Assignment
	revoked []*transport.Assignment // without a Leave before
	changed chan struct{}
}

func watch(ds []*transport.Delivery) *departures {
	left := &departures{changed: make(chan struct{}, 1)}
	for _, d := range ds {
		if slices.Contains(left.of, d.Assignment) {
			continue
		}
		left.of = append(left.of, d.Assignment)
	}
	for _, a := range left.of {
		a.OnLeave(func() {
			left.mu.Lock()
			defer left.mu.Unlock()
			left.leaving = append(left.leaving, a)
			if a.Revoked() {
				left.revoked = append(left.revoked, a)
			}
			select {
			case left.changed <- struct{}{}:
			default:
			}
		})
	}
	return left
}

// await waits until some assignments leave, and no others follow at once.
func (left *departures) await(r *rig) []*transport.Assignment {
	r.Helper()
	ctx, cancel := r.withinTakeover()
	defer cancel()
	select {
	case <-left.changed:
	case <-ctx.Done():
		require.FailNow(r, "no assignment leaves though a second member has joined")
	}
	for {
		timer := time.NewTimer(r.o.Quiet)
		select {
		case <-left.changed:
			timer.Stop()
			continue
		case <-timer.C:
		}
		left.mu.Lock()
		defer left.mu.Unlock()
		return slices.Clone(left.leaving)
	}
}

func (left *departures) revokedFirst() []*transport.Assignment {
	left.mu.Lock()
	defer left.mu.Unlock()
	return left.revoked
}

// memberLeaves: what a member leaves behind comes to those that stay.
func memberLeaves(r *rig) {
	s := r.stream()
	l := newLedger(r)
	l.work(s.join(r.tr))
	b := s.join(r.connect())
	held := s.share(b)
	b.settle(transport.Ack, held[0])
	b.close()
	for _, d := range held {
		require.ErrorIs(r, context.Cause(d.Assignment.Context()), transport.ErrRevoked, "the context of what Close gave back")
	}
	l.await(ids(held[1:]))
	late := s.spread("late", 32)
	l.await(late)
	r.rest(r.o.Quiet)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Zero(r, l.acked[held[0].ID], "what was acked before Close came again")
	for id, n := range l.acked {
		require.Equal(r, 1, n, "%s came %d times", id, n)
	}
}
