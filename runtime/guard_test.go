package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// invalid is an error of somebody's domain. A nil pointer to it is an error
// whose methods panic.
type invalid struct{ field string }

func (e *invalid) Error() string { return "invalid " + e.field }

// refusal is a permanent one, whose verdict survives a nil pointer.
type refusal struct{ invalid }

func (*refusal) Permanent() bool { return true }

// opinion is one whose verdict does not.
type opinion struct{ sure *bool }

func (opinion) Error() string     { return "opinion" }
func (e opinion) Permanent() bool { return *e.sure }

// TestErrorsThatPanic are judged like any other, and kill nobody.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	bare := func(p *transport.Policy) { p.Middleware = []message.HandlerMiddleware{} }
	for name, tc := range map[string]struct {
		fail   func() error
		policy func(*transport.Policy)
		runs   int
	}{
		"the text":                           {fail: func() error { return (*invalid)(nil) }, runs: 5},
		"the text, permanent":                {fail: func() error { return (*refusal)(nil) }, runs: 1},
		"the text, permanent, no chain":      {fail: func() error { return (*refusal)(nil) }, policy: bare, runs: 1},
		"the verdict":                        {fail: func() error { return opinion{} }, runs: 5},
		"the verdict, no chain":              {fail: func() error { return opinion{} }, policy: bare, runs: 5},
		"the verdict of what it panics with": {fail: func() error { panic(opinion{}) }, policy: bare, runs: 5},
		"the text of what it panics with":    {fail: func() error { panic((*invalid)(nil)) }, runs: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				change := tc.policy
				if change == nil {
					change = func(*transport.Policy) {}
				}
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					if m.UUID == "bad" {
						return nil, tc.fail()
					}
					return nil, nil
				}, w.policy(change))
				w.publish("in", msg("bad", "k", "x"), msg("next", "k", "x"))
				s := w.settled()
				require.Equal(w, int64(1), s.Count(transport.Dead))
				require.Equal(w, int64(1), s.Count(transport.Handled))
				require.Len(w, w.runsOf("bad"), tc.runs)
				require.Len(w, w.read("in--g--dead"), 1)
			})
		})
	}
}

// TestHookWhoseErrorPanics: a hook is called again whatever it returned.
func TestHookWhoseErrorPanics(t *testing.T) {
	t.Parallel()
	inMemory(t, memoryDefaults, func(w *world) {
		calls := 0
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			transport.OnSettle(m.Context(), func(context.Context, transport.Outcome) error {
				switch calls++; calls {
				case 1:
					return (*invalid)(nil)
				case 2:
					panic((*invalid)(nil))
				default:
					return nil
				}
			})
			return nil, nil
		}, w.policy())
		w.publish("in", msg("m", "k", "x"))
		require.Equal(w, int64(1), w.settled().Count(transport.Handled))
		require.Equal(w, 3, calls)
	})
}

// TestGoexitInAHook: the message runs again, no attempt spent, and neither its
// lane nor the drain waits for a goroutine that is gone.
func TestGoexitInAHook(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]func(){
		"after a return": func() {},
		"after a Goexit": goruntime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memoryDefaults, func(w *world) {
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					if m.UUID != "bad" || len(w.runsOf("bad")) > 1 {
						return nil, nil
					}
					transport.OnSettle(m.Context(), func(context.Context, transport.Outcome) error {
						goruntime.Goexit()
						return nil
					})
					h()
					return nil, nil
				}, w.policy())
				w.publish("in", msg("bad", "k", "x"), msg("next", "k", "x"))
				s := w.settled()
				require.Equal(w, int64(2), s.Count(transport.Handled))
				require.Equal(w, int64(1), s.Count(transport.Waiting))
				require.Equal(w, []string{"bad", "bad", "next"}, w.order())
				require.Equal(w, 1, w.runsOf("bad")[1].attempt)
				require.NoError(w, w.drain())
			})
		})
	}
}

// TestOrderKeyPanics: messages it panics for have no order, the others keep theirs.
func TestOrderKeyPanics(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		w.consume(ok, w.policy(func(p *transport.Policy) {
			p.Order = transport.OrderKey
			p.OrderKey = func(d *transport.Delivery) string { return string(d.Payload[:4]) }
		}))
		for i := range 10 {
			w.publish("in", msg(fmt.Sprintf("long/%03d", i), "k", "long"), msg(fmt.Sprintf("short %d", i), "k", "x"))
		}
		require.Equal(w, int64(20), w.settled().Count(transport.Handled))
		var long []string
		for _, id := range w.order() {
			if strings.HasPrefix(id, "long/") {
				long = append(long, id)
			}
		}
		require.IsIncreasing(w, long)
	})
}

// TestOrderKeyOfThePayload: what it gives is one at a time and in order;
// messages of one message key run side by side if it parts them.
func TestOrderKeyOfThePayload(t *testing.T) {
	t.Parallel()
	memories(t, func(w *world) {
		var mu sync.Mutex
		running := make(map[string]int)
		most, side := 0, 0
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			key := string(m.Payload)
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				running[key] += n
				most, side = max(most, running[key]), max(side, running["a"]+running["b"]+running["c"])
			}
			count(1)
			defer count(-1)
			time.Sleep(time.Second)
			return nil, nil
		}, w.policy(func(p *transport.Policy) {
			p.Order = transport.OrderKey
			p.OrderKey = func(d *transport.Delivery) string { return string(d.Payload) }
		}))
		for i := range 8 {
			for _, key := range []string{"a", "b", "c"} {
				w.publish("in", msg(fmt.Sprintf("%s/%03d", key, i), "same", key))
			}
		}
		require.Equal(w, int64(24), w.settled().Count(transport.Handled))
		require.Equal(w, 1, most)
		require.Equal(w, 3, side)
		w.requireKeyOrder()
	})
}

// TestMarkWithoutAPolicy: a link's mark that names no dead letter means that of the consumer.
func TestMarkWithoutAPolicy(t *testing.T) {
	t.Parallel()
	memories(t, func(w *world) {
		w.consume(func(m *message.Message) ([]*message.Message, error) {
			err := permanent{errBoom}
			transport.MarkDead(m.Context(), transport.DeadMark{Reason: "mine", Err: err})
			return nil, err
		}, w.policy(func(p *transport.Policy) { p.Middleware = []message.HandlerMiddleware{} }))
		w.publish("in", msg("m", "k", "x"))
		require.Equal(w, int64(1), w.settled().Count(transport.Dead))
		require.Len(w, w.read("in--g--dead"), 1)
	})
}

// TestPoliciesThatAreRefused: a word that nobody knows, or a link that nobody
// would call, is an error before anything runs.
func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	link := func(h message.HandlerFunc) message.HandlerFunc { return h }
	links := []message.HandlerMiddleware{link}
	for text, p := range map[string]transport.Policy{
		`order "keys"`:        {Order: "keys"},
		`retry order "kept"`:  {RetryOrder: "kept"},
		`dead letter "Topic"`: {DeadLetter: transport.DeadLetter{Mode: "Topic"}},
		`start "first"`:       {Start: "first"},
		"middleware.Default":  {Timeout: time.Second},
		"the policy has":      {Dedup: link},
		"has links":           {Wrap: links},
		"empty Middleware":    {Use: links},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r := runtime.NewRouter(runtime.Options{})
			err := r.Consume("c", memory.NewBroker(memoryDefaults).Transport(), "in", ok, p)
			require.ErrorContains(t, err, `consumer "c": `)
			require.ErrorContains(t, err, text)
		})
	}
}
