package runtime

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// idleConsumer is one that was never run.
func idleConsumer(tb testing.TB) *consumer {
	tb.Helper()
	r := NewRouter(Options{})
	h := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	require.NoError(tb, r.Consume("c", memory.NewBroker(memory.Options{}).Transport(), "in", h, transport.Policy{}))
	c := r.consumers[0]
	c.base = context.Background()
	require.NoError(tb, c.compose(nil))
	return c
}

func (c *consumer) hold(tb testing.TB, id string) {
	tb.Helper()
	d := &transport.Delivery{ID: id, Topic: "in", Assignment: transport.NewAssignment(tb.Context(), "in", 0)}
	c.mu.Lock()
	defer c.mu.Unlock()
	sp, _ := c.q.spellOf(d.Assignment, c.session)
	c.q.admit(d, sp, "")
}

// TestAliveWithALockHeld: whoever holds a lock of the engine and does not let
// go stops it, and it is alive again as soon as the lock is free. The clock is
// the real one: a lock that is waited for stops a virtual one.
func TestAliveWithALockHeld(t *testing.T) {
	t.Parallel()
	c := idleConsumer(t)
	locks := map[string]*sync.Mutex{"router": &c.router.mu, `consumer "c"`: &c.mu}
	for name, mu := range locks {
		mu.Lock()
		require.Eventually(t, func() bool {
			err := c.router.Alive(10 * time.Millisecond)
			return err != nil && strings.HasPrefix(err.Error(), name+": the engine's lock could not be had for ")
		}, 10*time.Second, time.Millisecond)
		mu.Unlock()
		require.Eventually(t, func() bool { return c.router.Alive(10*time.Millisecond) == nil }, 10*time.Second, time.Millisecond)
	}
}

// TestAliveWithoutAWakeUp: a message that could start, and that nobody starts,
// is a stuck engine; others that take its place in time are load.
func TestAliveWithoutAWakeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idleConsumer(t)
		alive := func() error {
			time.Sleep(5 * time.Second)
			defer synctest.Wait() // for the look
			return c.router.Alive(10 * time.Second)
		}
		for i := range 20 {
			c.hold(t, strconv.Itoa(i))
			require.NoError(t, alive())
			c.q.done(c.q.take(), true, time.Time{})
		}
		c.hold(t, "stuck")
		for range 4 {
			require.NoError(t, alive())
		}
		require.EqualError(t, alive(), `consumer "c": nothing went on for 15s, though something could`)
		c.q.take()
		require.Error(t, alive(), "the last look knew no better")
		require.NoError(t, alive())
	})
}

// TestAliveWithoutAReceive: the same for credit that the receiver is not told of.
func TestAliveWithoutAReceive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := idleConsumer(t)
		c.session = newSession(t.Context(), nil, c)
		c.session.pulls, c.hungry = 7, true
		for range 4 {
			require.NoError(t, c.router.Alive(10*time.Second))
			synctest.Wait()
			time.Sleep(5 * time.Second)
		}
		require.ErrorContains(t, c.router.Alive(10*time.Second), "nothing went on for 15s")
		synctest.Wait()
	})
}

// BenchmarkTracingOff is what an attempt with an output pays for spans that
// nobody wants.
func BenchmarkTracingOff(b *testing.B) {
	c := idleConsumer(b)
	d := &transport.Delivery{ID: "1", Topic: "in", Assignment: transport.NewAssignment(b.Context(), "in", 0)}
	w := &worker{it: &item{d: d}, a: transport.NewAttempt(d, "c", "g", 1, time.Time{})}
	msg := w.a.Message()
	r := &result{outcome: transport.Handled}
	for b.Loop() {
		c.beginSpan(w, msg)
		if w.trace != nil {
			b.Fatal("there is a span")
		}
		endSends(c.beginSends(r, "out", nil), nil)
		c.endSpan(r)
	}
}
