package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// model is what a broker must keep to, whoever comes and goes: no message in
// two hands, none lost, first deliveries in order, and what is settled stays
// so (but for what a log had acked ahead of its mark when a member was lost).
type model struct {
	*rapid.T
	r         *rig
	log       bool
	published int
	members   []*member
	acked     map[string]bool // by us, ever
	done      map[string]bool // of these, what must not come again
	last      map[int32]int64 // highest offset of a first delivery
}

type member struct {
	transport.Consumer
	held []*transport.Delivery
}

func (m *model) some(what string) *member {
	if len(m.members) == 0 {
		m.Skip("no members")
	}
	return rapid.SampledFrom(m.members).Draw(m.T, what)
}

func (m *model) publish() {
	for range rapid.IntRange(1, 20).Draw(m.T, "messages") {
		key := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(m.T, "key")
		require.NoError(m, m.r.pub.Publish(context.Background(), topicName, msg(fmt.Sprint(m.published), key)))
		m.published++
	}
}

func (m *model) join() {
	cfg := transport.ConsumerConfig{Topics: []string{topicName}, Group: groupName, Base: context.Background(), Span: 8}
	c, err := m.r.tr.OpenConsumer(context.Background(), cfg)
	require.NoError(m, err)
	m.members = append(m.members, &member{Consumer: c})
}

func (m *model) receive(by *member, limit int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ds []*transport.Delivery
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ds, err = by.Receive(ctx, limit, unbounded)
	}()
	synctest.Wait() // no time passes, so that nothing else happens at the same instant
	cancel()
	<-done
	if err != nil {
		require.ErrorIs(m, err, context.Canceled)
	}
	for _, d := range ds {
		require.False(m, d.Assignment.Leaving())
		require.False(m, m.done[d.ID], "%s was settled", d.ID)
		for _, other := range m.members {
			for _, h := range other.held {
				require.False(m, h.ID == d.ID && !h.Assignment.Revoked(), "%s is held", d.ID)
			}
		}
		if !d.Redelivered {
			require.Greater(m, d.Offset, m.last[d.Partition])
			m.last[d.Partition] = d.Offset
		}
	}
	by.held = append(by.held, ds...)
	return len(ds)
}

func (m *model) settle(by *member, v transport.Verdict, n int) {
	for range min(n, len(by.held)) {
		i := rapid.IntRange(0, len(by.held)-1).Draw(m.T, "which")
		d := by.held[i]
		by.held = append(by.held[:i], by.held[i+1:]...)
		if !d.Assignment.Revoked() && v == transport.Ack {
			m.acked[d.ID], m.done[d.ID] = true, true
		}
		batch := settlements(v, d)
		batch[0].After = time.Duration(rapid.IntRange(0, 5).Draw(m.T, "after"))
		require.NoError(m, by.Settle(context.Background(), batch))
	}
}

// lost is what a crash does to what a log had acked: anything may come again
// that its group does not count.
func (m *model) lost() {
	if m.log {
		clear(m.done)
	}
}

func (m *model) end(by *member) {
	for i := range m.members {
		if m.members[i] == by {
			m.members = append(m.members[:i], m.members[i+1:]...)
			break
		}
	}
	require.NoError(m, by.Close(context.Background()))
}

func TestModel(t *testing.T) {
	t.Parallel()
	for _, log := range []bool{false, true} {
		t.Run(fmt.Sprint("log ", log), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				var failed any // rapid recovers what it panics with, in its own goroutine
				synctest.Test(t, func(t *testing.T) {
					defer func() { failed = recover() }()
					run(rt, newRig(t, memory.Options{Partitions: 3, Log: log, RebalanceDrain: 3, Retain: -1}), log)
				})
				if failed != nil {
					panic(failed)
				}
			})
		})
	}
}

func run(t *rapid.T, r *rig, log bool) {
	m := &model{T: t, r: r, log: log, acked: map[string]bool{}, done: map[string]bool{}, last: map[int32]int64{0: -1, 1: -1, 2: -1}}
	verdicts := []transport.Verdict{transport.Ack, transport.Ack, transport.Release, transport.Delay}
	t.Repeat(map[string]func(*rapid.T){
		"publish": func(*rapid.T) { m.publish() },
		"join":    func(*rapid.T) { m.join() },
		"receive": func(*rapid.T) { m.receive(m.some("member"), rapid.IntRange(1, 20).Draw(t, "limit")) },
		"settle": func(*rapid.T) {
			m.settle(m.some("member"), rapid.SampledFrom(verdicts).Draw(t, "verdict"), rapid.IntRange(1, 10).Draw(t, "n"))
		},
		"close": func(*rapid.T) { m.end(m.some("member")) },
		"cut": func(*rapid.T) {
			m.lost()
			r.broker.Cut(errFault, nil)
			for len(m.members) > 0 {
				m.end(m.members[0])
			}
		},
		"rebalance": func(*rapid.T) { r.broker.Rebalance(groupName, topicName, rapid.Int32Range(0, 2).Draw(t, "partition")) },
		"revoke": func(*rapid.T) {
			m.lost()
			r.broker.Revoke(groupName, topicName, rapid.Int32Range(0, 2).Draw(t, "partition"))
		},
		"wait": func(*rapid.T) { <-time.After(time.Duration(rapid.IntRange(1, 5).Draw(t, "time"))) },
		"":     func(*rapid.T) { synctest.Wait() }, // for drains that have run out of time
	})
	m.finish()
}

// finish lets one member take what is left, and counts.
func (m *model) finish() {
	for len(m.members) > 0 {
		m.end(m.members[0])
	}
	m.join()
	for rounds := 0; m.r.depth() != (transport.Depth{}); rounds++ {
		require.Less(m, rounds, m.published+10, "something is stuck: %+v", m.r.depth())
		m.settle(m.members[0], transport.Ack, m.receive(m.members[0], 100))
		<-time.After(5)
		synctest.Wait()
	}
	require.Len(m, m.acked, m.published, "none is lost")
	require.Equal(m, int64(m.published), m.r.broker.Acked(topicName, groupName))
	m.end(m.members[0])
}
