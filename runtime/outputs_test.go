package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// emits returns a handler that leaves one output for each topic.
func emits(topics ...string) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		for _, tp := range topics {
			out := msg("", m.Metadata.Get(transport.KeyHeader), "out of "+m.UUID)
			if err := transport.Emit(m.Context(), tp, out); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// TestOutputs are published if the handler succeeds, and only then; their ids
// are derived, so that another run gives the same.
func TestOutputs(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			_, err := emits("a", "a", "b")(m)
			require.NoError(w, err)
			if transport.AttemptFrom(m.Context()).Number() == 1 {
				return []*message.Message{msg("", "", "never")}, errBoom
			}
			return []*message.Message{msg("", "", "returned"), msg("mine", "", "kept"), msg(uuid.NewString(), "", "random")}, nil
		}, w.policy(func(p *transport.Policy) { p.PublishTo = "b" }))
		w.publish("in", msg("m", "k", "x"))
		w.settled()
		a, b := w.read("a"), w.read("b")
		require.Len(w, a, 2)
		require.Len(w, b, 4)
		ids := make(map[string]bool)
		for _, d := range append(a, b...) {
			require.NotContains(w, ids, d.ID)
			ids[d.ID] = true
			if d.ID == "mine" {
				require.Empty(w, d.Headers.Get(transport.DerivedHeader))
				continue
			}
			require.Equal(w, "1", d.Headers.Get(transport.DerivedHeader))
			require.Equal(w, uuid.Version(5), uuid.MustParse(d.ID).Version())
		}
		require.Equal(w, "k", a[0].Key)

		w.publish("in", msg("m", "k", "x")) // the same once more
		w.settled()
		for _, d := range append(w.read("a"), w.read("b")...) {
			require.Contains(w, ids, d.ID, "derived from the source alone")
		}
	})
}

// TestDerivedIDsAreAFormat: what an id is derived to must not change between versions.
func TestDerivedIDsAreAFormat(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.consume(emits("a"), w.policy())
		w.publish("in", msg("m", "k", "x"))
		w.settled()
		require.Equal(w, "f5f2a178-e7b4-5dc0-8144-adb92324b520", w.read("a")[0].ID)
	})
}

// TestFailedPublish repeats only the publish: the handler is not run again, no
// attempt is spent, the message is not acked meanwhile, and its key waits.
func TestFailedPublish(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]memory.Fault{
		"all":               {Err: errAway},
		"confirmation lost": {Err: errAway, Late: true},
		"some":              {Err: errAway, Match: func(m *message.Message) bool { return strings.HasSuffix(string(m.Payload), "2") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				fault.Op, fault.Topic = memory.OpPublish, "a"
				remove := w.broker.Inject(fault)
				w.consume(emits("a", "a"), w.policy())
				w.publish("in", msg("k/1", "k", "x"), msg("k/2", "k", "x"))
				time.Sleep(time.Minute)
				s := w.router.Status()[0]
				require.Equal(w, runtime.StateBlocked, s.State)
				require.Contains(w, s.Why, "output a: ")
				require.Less(w, w.broker.Acked("in", "g"), int64(2))
				require.Zero(w, s.Running, "no slot is held")
				remove()
				s = w.settled()
				require.Equal(w, int64(2), s.Count(transport.Handled))
				require.Equal(w, []string{"k/1", "k/2"}, w.order())
				ids := make(map[string]string)
				for _, d := range w.read("a") {
					ids[d.ID] = string(d.Payload)
				}
				require.Len(w, ids, 4, "as many distinct ones as were emitted")
			})
		})
	}
}

// TestOutputsHoldBackIntake: a broken output broker stops intake at the
// prefetch, instead of filling memory.
func TestOutputsHoldBackIntake(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "a", Err: errAway})
		w.consume(emits("a"), w.policy(func(p *transport.Policy) { p.Concurrency, p.Prefetch = 2, 10 }))
		w.publishKeys(100, 1)
		time.Sleep(time.Minute)
		s := w.router.Status()[0]
		require.Equal(w, 10, s.InFlight)
		require.Equal(w, int64(10), s.Received)
		require.Len(w, w.order(), 10)
		remove()
		require.Equal(w, int64(100), w.settled().Count(transport.Handled))
	})
}

// TestOutputThatCanNeverBePublished makes its message permanent.
func TestOutputThatCanNeverBePublished(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.broker.Inject(memory.Fault{
			Op: memory.OpPublish, Topic: "a", Err: errors.New("too large"), Permanent: true,
			Match: func(*message.Message) bool { return true },
		})
		w.consume(emits("a"), w.policy())
		w.publish("in", msg("m", "k", "x"))
		require.Equal(w, int64(1), w.settled().Count(transport.Dead))
		letters := w.read("in--g--dead")
		require.Len(w, letters, 1)
		require.Equal(w, transport.ReasonUnpublished, letters[0].Headers.Get(transport.DeadReasonHeader))
		require.Contains(w, letters[0].Headers.Get(transport.DeadErrorHeader), "too large")
		require.Len(w, w.order(), 1)
	})
}

// TestDeadLetterDown: the source stays unacked with the broker, the status
// says why, there is no busy loop, and it drains when the dead letter is back (E3, C03).
func TestDeadLetterDown(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		tries := 0
		remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "in--g--dead", Err: errAway, Match: func(*message.Message) bool {
			tries++
			return true
		}})
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if m.UUID == "bad" {
				return nil, permanent{errBoom}
			}
			return nil, nil
		}, w.policy())
		w.publish("in", msg("bad", "k", "x"), msg("behind", "k", "x"), msg("other", "o", "x"))
		time.Sleep(time.Minute)
		require.Equal(w, int64(1), w.broker.Acked("in", "g"))
		s := w.router.Status()[0]
		require.Equal(w, runtime.StateBlocked, s.State)
		require.Contains(w, s.Why, "dead letter in--g--dead")
		require.LessOrEqual(w, tries, 30)
		require.Len(w, w.runsOf("other"), 1)
		require.Empty(w, w.runsOf("behind"))
		remove()
		w.settled()
		require.Len(w, w.read("in--g--dead"), 1)
		require.Len(w, w.runsOf("bad"), 1, "the handler is not run again for it")
		require.Len(w, w.runsOf("behind"), 1)
	})
}

// TestDrainWithADeadLetterDown gives up at the drain timeout and loses nothing.
func TestDrainWithADeadLetterDown(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "in--g--dead", Err: errAway})
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, permanent{errBoom} }, w.policy())
		w.publish("in", msg("bad", "k", "x"))
		time.Sleep(time.Second)
		require.ErrorIs(w, w.drain(), runtime.ErrDrainTimeout)
		require.Zero(w, w.broker.Acked("in", "g"))
		remove()
		w.consume(ok, w.policy())
		require.Equal(w, int64(1), w.settled().Count(transport.Handled))
	})
}

// TestMutateThenFail: later attempts and the dead letter see what was
// received, whatever a handler did to its copy (C8).
func TestMutateThenFail(t *testing.T) {
	t.Parallel()
	for _, payload := range []message.Payload{nil, {}, message.Payload("body\x00\xff")} {
		worlds(t, func(w *world) {
			headers := message.Metadata{"plain": "v", "ünïcode": "wért\n", transport.KeyHeader: "k"}
			w.consume(func(m *message.Message) ([]*message.Message, error) {
				require.Equal(w, headers, m.Metadata)
				require.Equal(w, payload, m.Payload)
				if len(m.Payload) > 0 {
					m.Payload[0] = 'X'
				}
				m.Payload = message.Payload("changed")
				m.Metadata["plain"] = "changed"
				m.Metadata["more"] = "x"
				m.UUID = "changed"
				m.Nack()
				return nil, errBoom
			}, w.policy())
			w.publish("in", &message.Message{UUID: "m", Payload: payload, Metadata: maps.Clone(headers)})
			require.Equal(w, int64(1), w.settled().Count(transport.Dead))
			letters := w.read("in--g--dead")
			require.Len(w, letters, 1)
			require.Equal(w, "m", letters[0].ID)
			require.Equal(w, []byte(payload), letters[0].Payload, "nil and empty apart")
			for k, v := range headers {
				require.Equal(w, v, letters[0].Headers.Get(k))
			}
		})
	}
}

// TestSettledByHand: a handler's own Ack and Nack change nothing.
func TestSettledByHand(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			if transport.AttemptFrom(m.Context()).Number() == 1 {
				m.Ack()
				return nil, errBoom
			}
			m.Nack()
			return nil, nil
		}, w.policy())
		w.publish("in", msg("m", "k", "x"))
		require.Equal(w, int64(1), w.settled().Count(transport.Handled))
		require.Len(w, w.runsOf("m"), 2)
	})
}

// TestHooks learn the outcome after outputs are confirmed and before the broker is told.
func TestHooks(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		var events []string
		w.broker.Observe(func(e memory.Event) {
			switch {
			case e.Kind == memory.Published && e.Topic == "a":
				events = append(events, "output")
			case e.Kind == memory.Settled && e.Topic == "in":
				events = append(events, e.Verdict.String())
			}
		})
		failures := 2
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			transport.OnSettle(m.Context(), func(_ context.Context, o transport.Outcome) error {
				events = append(events, o.String())
				if o == transport.Handled && failures > 0 {
					failures--
					return errAway
				}
				return nil
			})
			if transport.AttemptFrom(m.Context()).Number() == 1 {
				return nil, errBoom
			}
			return emits("a")(m)
		}, w.policy())
		w.publish("in", msg("m", "k", "x"))
		w.settled()
		require.Equal(w, []string{"retried", "record", "output", "handled", "handled", "handled", "ack"}, events)
	})
}

// TestDedup: copies are acked unrun once the first has succeeded, wait while
// it runs, and run if it fails for good (F2).
func TestDedup(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		store := middleware.NewMemoryDedup(1000)
		link, err := middleware.Dedup(middleware.DedupOptions{Key: "metadata.order", Window: time.Hour, Store: store})
		require.NoError(w, err)
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			time.Sleep(time.Second)
			if transport.AttemptFrom(m.Context()).Number() == 1 && strings.HasPrefix(m.UUID, "1") {
				return nil, errBoom
			}
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.Dedup = link }))
		for i := range 5 {
			for c := range 3 {
				id := fmt.Sprintf("%d-%d", i, c)
				w.publish("in", msg(id, id, "x", "order", fmt.Sprint(i)))
			}
		}
		s := w.settled()
		require.Equal(w, int64(5), s.Count(transport.Handled), "one of each order")
		require.Equal(w, int64(10), s.Count(transport.Duplicate))
		require.Positive(w, s.Count(transport.Waiting))
		require.Empty(w, w.read("in--g--dead"))
	})
}

// TestAckOnReceive: at most once. The broker is told before the handler runs.
func TestAckOnReceive(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		w.consume(func(*message.Message) ([]*message.Message, error) {
			time.Sleep(time.Minute)
			return nil, nil
		}, w.policy(func(p *transport.Policy) { p.AckOnReceive, p.Timeout = true, 0 }))
		w.publish("in", msg("m", "k", "x"))
		time.Sleep(time.Second)
		require.Equal(w, int64(1), w.broker.Acked("in", "g"))
		w.settled()
		require.Len(w, w.order(), 1)
	})
}
