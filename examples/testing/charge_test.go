package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/runtimetest"
	"github.com/leat-io/leat/runtime/transport"
)

// fakeBank says what the test wants, and keeps what was charged.
type fakeBank struct {
	says error // set between calls of the kit, so it needs no lock

	mu      sync.Mutex // handlers run side by side
	charged map[string]int64
}

func (b *fakeBank) Charge(_ context.Context, key string, cents int64) error {
	if b.says != nil {
		return b.says
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charged[key] = cents
	return nil
}

// play runs a test against the worker of worker.yaml, with a bank that says
// what it is told to.
func play(t *testing.T, test func(k *runtimetest.Kit, b *fakeBank)) {
	t.Helper()
	b := &fakeBank{charged: map[string]int64{}}
	runtimetest.Run(t, runtimetest.File("worker.yaml", parts(b)...), func(k *runtimetest.Kit) { test(k, b) })
}

func TestChargesAndEmits(t *testing.T) {
	t.Parallel()
	play(t, func(k *runtimetest.Kit, _ *fakeBank) {
		k.ExpectHandled(k.Publish("orders.placed", Order{"o-1", 500}))
		k.ExpectEmitted("payments.charged", Charged{"o-1", 500})
	})
}

// A bank in trouble is asked again after growing waits, and nothing is sent
// for an attempt that failed.
func TestRetries(t *testing.T) {
	t.Parallel()
	play(t, func(k *runtimetest.Kit, b *fakeBank) {
		b.says = errors.New("line is busy")
		order := k.Publish("orders.placed", Order{"o-1", 500})
		require.Equal(k, time.Second, k.ExpectRetried(order))
		require.Equal(k, 4*time.Second, k.ExpectRetried(order))
		k.ExpectEmitted("payments.charged")

		b.says = nil
		k.ExpectHandled(order)
		k.ExpectEmitted("payments.charged", Charged{"o-1", 500})
	})
}

// On Sunday the order waits for Monday, and so do later ones of its customer.
// Those of others do not.
func TestWaitsInOrder(t *testing.T) {
	t.Parallel()
	play(t, func(k *runtimetest.Kit, b *fakeBank) {
		b.says = ErrClosed
		sunday := k.Publish("orders.placed", Order{"o-1", 500}, handlers.Key("anna"))
		require.Equal(k, 12*time.Hour, k.ExpectRetried(sunday))

		b.says = nil
		later := k.Publish("orders.placed", Order{"o-2", 700}, handlers.Key("anna"))
		k.ExpectHandled(k.Publish("orders.placed", Order{"o-3", 900}, handlers.Key("bert")))
		require.Equal(k, 1, k.Status("charge").HeldByOrder)
		k.Advance(12 * time.Hour)
		k.ExpectHandled(sunday, later)
	})
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	play(t, func(k *runtimetest.Kit, b *fakeBank) {
		free := k.Publish("orders.placed", Order{"o-1", 0})
		garbled := k.Publish("orders.placed", []byte(`{"id": "o-9", "total": "many"}`))
		k.ExpectDead(free, garbled)

		b.says = errors.New("line is busy")
		busy := k.Publish("orders.placed", Order{"o-2", 500})
		k.ExpectDead(busy)

		reasons := map[string]string{}
		for _, d := range k.Dead() {
			reasons[d.ID] = d.Reason
		}
		require.Equal(k, map[string]string{
			free.ID: transport.ReasonPermanent, garbled.ID: transport.ReasonUndecodable, busy.ID: transport.ReasonExhausted,
		}, reasons)
		k.ExpectEmitted("payments.charged")
	})
}

// The same order sent twice is charged once.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	play(t, func(k *runtimetest.Kit, b *fakeBank) {
		k.ExpectHandled(k.Publish("orders.placed", Order{"o-1", 500}))
		k.ExpectDuplicate(k.Publish("orders.placed", Order{"o-1", 500}))
		require.Equal(k, map[string]int64{"o-1": 500}, b.charged)
		k.ExpectEmitted("payments.charged", Charged{"o-1", 500})
	})
}
