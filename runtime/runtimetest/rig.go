package runtimetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/worker"
)

// patience is how much virtual time an expectation gives: more than any wait
// that makes sense, and an end to those that never do.
const patience = 24 * time.Hour

// Run starts a worker in a bubble of virtual time, plays the test against it,
// and stops it as SIGTERM would. It fails the test if the worker does not
// start, or if a handler does not return.
//
// Inside, k takes the place of t: it is a testing.TB.
func Run(t *testing.T, s Subject, test func(k *Kit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		play(t, s, test)
	})
}

func play(tb testing.TB, s Subject, test func(k *Kit)) {
	tb.Helper()
	r := &rig{brokers: make(map[string]*memory.Broker), ledger: newLedger()}
	k := &Kit{TB: tb, rig: r}
	k.start(s)
	defer k.finish()
	test(k)
}

// rig is what all views of a kit share. It is used by the test's own
// goroutine; what others see is in the ledger.
type rig struct {
	ledger  *ledger
	brokers map[string]*memory.Broker // by the entry's name, "" for the main one
	router  *runtime.Router
	stop    context.CancelFunc
	ended   chan struct{}
	err     error // of the worker, once ended
	sent    int
}

// broker makes the broker of an entry once, and opens it.
func (r *rig) broker(name string) *link {
	b := r.brokers[name]
	if b == nil {
		b = memory.NewBroker(memory.Options{})
		r.brokers[name] = b
	}
	return &link{Transport: b.Transport(), name: name, ledger: r.ledger}
}

// table has what takes the place of brokers and store.
func (r *rig) table() worker.Table {
	return worker.Table{
		Transports: []worker.TransportKind{{
			Kind: kind, Open: func(_ worker.Env, c config.Component) (transport.Transport, error) {
				return r.broker(entryOf(c.Path())), nil
			},
		}},
		Stores: []worker.StoreKind{{
			Kind: kind, PerProcess: true, Check: func(worker.Env, config.Component) (worker.OpenStore, error) {
				return func(context.Context) (middleware.DedupStore, func() error, error) {
					return &store{middleware.NewMemoryDedup(0), r.ledger}, func() error { return nil }, nil
				}, nil
			},
		}},
	}
}

// entryOf gives the name of the entry at "broker" or "brokers.NAME".
func entryOf(path string) string {
	_, name, _ := strings.Cut(path, ".")
	return name
}

func (k *Kit) start(s Subject) {
	k.Helper()
	router, run, err := s.build(k.rig)
	if err != nil {
		k.Fatalf("runtimetest: %v", err)
	}
	router.Use(k.ledger.observe)
	ctx, stop := context.WithCancel(context.Background())
	k.router, k.stop, k.ended = router, stop, make(chan struct{})
	go func() {
		defer close(k.ended)
		k.err = run(ctx)
	}()
	select {
	case <-router.Ready():
	case <-k.ended:
		k.Fatalf("runtimetest: the worker ended before it was ready: %v", k.err)
	}
}

func (k *Kit) finish() {
	k.Helper()
	k.stop()
	<-k.ended
	switch {
	case errors.Is(k.err, runtime.ErrDrainTimeout):
		k.Errorf("runtimetest: at the end of drain_timeout a handler ran although its context was cancelled, or what it left was not confirmed\n%s", k.Timeline())
	case k.err != nil:
		k.Errorf("runtimetest: the worker ended with: %v", k.err)
	}
}

// await lets time go on until done, and tells whether that came to be. done is
// asked whenever everything waits.
func (r *rig) await(done func() bool) bool {
	r.ledger.meet()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		synctest.Wait()
		r.ledger.explain(r.router.Status())
		if done() {
			return true
		}
		select {
		case <-r.ledger.changed:
		case <-deadline.C:
			return false
		case <-r.ended:
			return false
		}
	}
}

// quiet tells whether nothing runs or could: what is left waits for its time,
// or behind something that does.
func (r *rig) quiet() bool {
	for _, s := range r.router.Status() {
		if s.State == runtime.StateReconnecting || s.Running > 0 || s.InFlight > s.Parked+s.HeldByOrder {
			return false
		}
	}
	return true
}

// idle tells whether nothing is left to do.
func (r *rig) idle() bool {
	for _, s := range r.router.Status() {
		if s.InFlight > 0 {
			return false
		}
	}
	return r.ledger.drained(r.brokers)
}
