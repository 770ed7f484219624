package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

var (
	memoryDefaults = memory.Options{}
	errAway        = errors.New("broker away")
)

const opOpenConsumer = memory.OpOpenConsumer

func faultOf(op memory.Op, err error) memory.Fault { return memory.Fault{Op: op, Err: err} }

func ok(*message.Message) ([]*message.Message, error) { return nil, nil }

// TestUnreachableAtTheStart: the broker is tried until it is there.
func TestUnreachableAtTheStart(t *testing.T) {
	t.Parallel()
	for _, op := range []memory.Op{memory.OpDeclare, memory.OpOpenConsumer, memory.OpOpenProducer} {
		inMemory(t, memoryDefaults, func(w *world) {
			w.broker.Inject(memory.Fault{Op: op, Err: errAway, Times: 5})
			w.consume(ok, w.policy())
			w.publish("in", msg("m", "k", "x"))
			require.Equal(w, int64(1), w.settled().Count(transport.Handled))
		})
	}
}

// TestRefusedAtTheStart: a clear no ends the router.
func TestRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.broker.Inject(faultOf(memory.OpOpenConsumer, transport.Refuse(errors.New("wrong password"))))
		r := runtime.NewRouter(runtime.Options{})
		require.NoError(w, r.Consume("c", w.tr, "in", ok, w.policy()))
		err := r.Run(context.Background())
		require.ErrorContains(w, err, `consumer "c"`)
		require.ErrorContains(w, err, "wrong password")
	})
}

// TestRefusedLater: after the first ready it keeps only its own consumer from
// running, and readiness stays.
func TestRefusedLater(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		p := w.policy()
		w.add("other", "elsewhere", ok, p)
		w.consume(ok, p)
		remove := w.broker.Inject(memory.Fault{Op: memory.OpOpenConsumer, Group: "g2", Err: transport.Refuse(errors.New("denied"))})
		defer remove()
		w.broker.Inject(memory.Fault{Op: memory.OpDeclare, Topic: "in", Err: transport.Refuse(errors.New("denied")), Times: 8})
		w.broker.Cut(errAway, func(c transport.ConsumerConfig) bool { return c.Name == "c" })
		time.Sleep(time.Second)
		require.Equal(w, runtime.StateReconnecting, w.router.Status()[1].State)
		require.Contains(w, w.router.Status()[1].Why, "denied")
		w.publish("elsewhere", msg("m", "k", "x"))
		time.Sleep(time.Second)
		require.Len(w, w.runsOf("m"), 1)
		select {
		case <-w.router.Ready():
		default:
			w.Fatal("readiness is latched")
		}
		w.publish("in", msg("n", "k", "x"))
		w.settled()
		require.Len(w, w.runsOf("n"), 1, "it runs again once the right is back")
	})
}

// TestFenced: a process whose instance name another one uses stops, whenever that comes.
func TestFenced(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.consume(ok, w.policy())
		w.broker.Inject(faultOf(memory.OpReceive, fmt.Errorf("instance %q: %w", "a", transport.ErrFenced)))
		require.ErrorIs(w, <-w.ended, transport.ErrFenced)
		w.stop()
		w.stop = nil
	})
}

// TestSettleFailsDuringADrain: it is tried on for a while after the drain.
func TestSettleFailsDuringADrain(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.consume(func(*message.Message) ([]*message.Message, error) {
			time.Sleep(time.Second)
			return nil, nil
		}, w.policy())
		w.publishKeys(8, 1)
		time.Sleep(500 * time.Millisecond)
		w.broker.Inject(memory.Fault{Op: memory.OpSettle, Err: errAway, Times: 3})
		require.NoError(w, w.drain())
		require.Equal(w, int64(8), w.broker.Acked("in", "g"))
	})
}

// TestReconnect: while a connection is lost, running handlers go on; their
// messages, delivered again, wait for them and are acked unrun; what has not
// started runs once.
func TestReconnect(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		if w.broker == nil {
			return
		}
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			time.Sleep(10 * time.Second)
			return nil, m.Context().Err() // cancelled, if it looks
		}, w.policy(func(p *transport.Policy) {
			p.Concurrency, p.Timeout = 4, 0
			p.Middleware = []message.HandlerMiddleware{}
		}))
		w.publishKeys(8, 2)
		time.Sleep(time.Second)
		w.broker.Cut(errAway, nil)
		s := w.settled()
		w.requireKeyOrder()
		for id, runs := range w.runs {
			require.LessOrEqual(w, len(runs), 2, id)
		}
		require.Equal(w, int64(16), s.Count(transport.Handled)+s.Count(transport.Duplicate))
	})
}

// TestRedeliveryOfARunningMessage: it is acked unrun if the run succeeds, and
// runs if it does not.
func TestRedeliveryOfARunningMessage(t *testing.T) {
	t.Parallel()
	for _, succeeds := range []bool{true, false} {
		worlds(t, func(w *world) {
			if w.broker == nil {
				return
			}
			w.consume(func(m *message.Message) ([]*message.Message, error) {
				if len(w.runsOf("k/1")) > 1 || m.UUID == "k/2" {
					return nil, nil
				}
				time.Sleep(10 * time.Second) // deaf to its context
				if !succeeds {
					return nil, errBoom
				}
				return nil, nil
			}, w.policy())
			w.publish("in", msg("k/1", "k", "x"), msg("k/2", "k", "x"))
			time.Sleep(time.Second)
			w.broker.Cut(errAway, nil)
			time.Sleep(5 * time.Second)
			require.Len(w, w.order(), 1, "its lane stays taken")
			s := w.settled()
			w.requireKeyOrder()
			if succeeds {
				require.Equal(w, []string{"k/1", "k/2"}, w.order())
				require.Equal(w, int64(1), s.Count(transport.Duplicate))
			} else {
				require.Equal(w, []string{"k/1", "k/1", "k/2"}, w.order())
				require.Equal(w, 1, w.runsOf("k/1")[1].attempt, "interrupted: no attempt spent")
			}
		})
	}
}

// TestAcksOfALostConnection: what was done and could not be told is acked
// unrun when it comes back.
func TestAcksOfALostConnection(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.consume(ok, w.policy())
		remove := w.broker.Inject(faultOf(memory.OpSettle, errAway))
		w.publishKeys(10, 3)
		time.Sleep(10 * time.Second)
		s := w.router.Status()[0]
		require.Equal(w, int64(30), s.Count(transport.Handled))
		require.Equal(w, runtime.StateBlocked, s.State)
		w.broker.Cut(errAway, nil)
		time.Sleep(time.Millisecond)
		remove()
		s = w.settled()
		require.Equal(w, int64(30), s.Count(transport.Duplicate))
		require.Len(w, w.order(), 30)
		require.Equal(w, int64(30), w.broker.Acked("in", "g"))
	})
}

// TestSettleFails: the same batch is told again, with waits.
func TestSettleFails(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		inMemory(t, memoryDefaults, func(w *world) {
			w.consume(ok, w.policy())
			w.broker.Inject(memory.Fault{Op: memory.OpSettle, Err: errAway, Times: 5, Late: late})
			w.publishKeys(10, 3)
			require.Equal(w, int64(30), w.settled().Count(transport.Handled))
			require.Equal(w, int64(30), w.broker.Acked("in", "g"))
		})
	}
}

// TestRevoked: an attempt of a revoked partition is cancelled with that cause
// and is no failure; a parked message is given up at once, no attempt spent.
func TestRevoked(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		var cause atomic.Value
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "runs" && len(w.runsOf("runs")) == 1 {
				<-m.Context().Done()
				cause.Store(context.Cause(m.Context()))
				return nil, m.Context().Err()
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Retry = backoff(w, 1) }))
		w.publish("in", msg("runs", "a", "x"))
		time.Sleep(time.Second)
		w.broker.Revoke("g", "in", 0)
		s := w.settled()
		require.Equal(w, transport.ErrRevoked, cause.Load())
		require.Equal(w, int64(1), s.Count(transport.Interrupted))
		require.Equal(w, int64(1), s.Count(transport.Handled))
		require.Equal(w, 1, w.runsOf("runs")[1].attempt)
		require.Empty(w, w.read("in--g--dead"))
	})
}

// TestLeaving: what runs of a partition that leaves is finished and acked;
// nothing more of it starts.
func TestLeaving(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{Partitions: 1}, func(w *world) {
		w.consume(func(*message.Message) ([]*message.Message, error) {
			time.Sleep(time.Second)
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Concurrency = 2 }))
		w.publishKeys(10, 1)
		time.Sleep(500 * time.Millisecond)
		w.broker.Rebalance("g", "in", 0)
		s := w.settled()
		require.Equal(w, int64(10), s.Count(transport.Handled))
		require.Zero(w, s.Count(transport.Interrupted))
		require.Len(w, w.order(), 10, "none twice")
	})
}

// TestNoIntakeBeforeTheDeadLetter is known to be there.
func TestNoIntakeBeforeTheDeadLetter(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		remove := w.broker.Inject(memory.Fault{Op: memory.OpDeclare, Topic: "in--g--dead", Err: errAway})
		w.publish("in", msg("m", "k", "x"))
		w.router = runtime.NewRouter(runtime.Options{})
		require.NoError(w, w.router.Consume("c", w.tr, "in", w.noting(ok), w.policy()))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.router.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Empty(w, w.order())
		remove()
		time.Sleep(time.Minute)
		require.Len(w, w.order(), 1)
		stop()
		require.NoError(w, <-ended)
	})
}

// TestOneConsumerNeverStopsTheOthers, whatever its handler does (B6).
func TestOneConsumerNeverStopsTheOthers(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		release := make(chan struct{})
		w.add("stuck", "bad", func(*message.Message) ([]*message.Message, error) {
			<-release
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Timeout = 0 }))
		w.consume(ok, w.policy())
		for i := range 100 {
			w.publish("bad", msg(fmt.Sprint("bad", i), "k", "x"))
		}
		w.publishKeys(10, 10)
		time.Sleep(10 * time.Second)
		require.Equal(w, int64(100), w.router.Status()[1].Count(transport.Handled))
		close(release)
		w.settled()
	})
}
