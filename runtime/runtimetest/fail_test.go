package runtimetest_test

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/runtimetest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB

	said []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) FailNow() { goruntime.Goexit() }

// failed plays a test and returns what it failed with.
// after, if there is one, is called in the bubble when it is over.
func failed(t *testing.T, s runtimetest.Subject, test func(k *runtimetest.Kit), after ...func()) (said string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtimetest.Play(r, s, test)
		}()
		<-done
		for _, fn := range after {
			fn()
		}
		said = strings.Join(r.said, "\n")
	})
	return said
}

// scripted is a consumer whose messages say what becomes of them.
func scripted() runtimetest.Subject {
	h := func(m *message.Message) ([]*message.Message, error) {
		switch string(m.Payload) {
		case "fail":
			return nil, errBusy
		case "die":
			return nil, handlers.Permanent(errBusy)
		case "skip":
			return nil, handlers.Skip("not ours")
		case "emit":
			return nil, handlers.Emit(m.Context(), "out", 1)
		}
		return nil, nil
	}
	retry, err := transport.NewRetryPolicy(transport.Backoff{Attempts: 3, InitialInterval: time.Second, Jitter: -1})
	if err != nil {
		panic(err)
	}
	return runtimetest.Consumer("c", "in", h, transport.Policy{Retry: retry})
}

// TestExpectationsFail: each says no when it should, with what happened.
func TestExpectationsFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		test func(k *runtimetest.Kit)
		want []string
	}{
		"handled, and it is dead": {
			func(k *runtimetest.Kit) { k.ExpectHandled(k.Publish("in", []byte("fail"))) },
			[]string{
				"want handled", `message m1 of "c" is dead`, "attempt 1  retried, again in 1s: bank is busy",
				"attempt 2  retried, again in 2s: bank is busy", "attempt 3  dead: bank is busy", "+3s",
			},
		},
		"handled, and it never ends": {
			func(k *runtimetest.Kit) {
				k.Broker("").Inject(memory.Fault{Op: memory.OpPublish, Topic: "out", Err: errors.New("disk full")})
				k.ExpectHandled(k.Publish("in", []byte("emit")))
			},
			[]string{"want handled", "attempt 1  to be confirmed", "is blocked: output out: disk full", "now +24h"},
		},
		"all handled, and one is skipped": {
			func(k *runtimetest.Kit) {
				k.Publish("in", []byte("ok"))
				k.Publish("in", []byte("skip"))
				k.ExpectHandled()
			},
			[]string{"want handled", `message m2 of "c" is skipped`},
		},
		"all handled, and there is nothing": {
			func(k *runtimetest.Kit) { k.ExpectHandled() },
			[]string{"want handled, and no message was published"},
		},
		"dead":      {func(k *runtimetest.Kit) { k.ExpectDead(k.Publish("in", []byte("ok"))) }, []string{"want dead", "is handled"}},
		"skipped":   {func(k *runtimetest.Kit) { k.ExpectSkipped(k.Publish("in", []byte("ok"))) }, []string{"want skipped", "is handled"}},
		"duplicate": {func(k *runtimetest.Kit) { k.ExpectDuplicate(k.Publish("in", []byte("die"))) }, []string{"want duplicate", "is dead"}},
		"retried":   {func(k *runtimetest.Kit) { k.ExpectRetried(k.Publish("in", []byte("ok"))) }, []string{"want retried", "is handled"}},
		"retried once too often": {
			func(k *runtimetest.Kit) {
				m := k.Publish("in", []byte("fail"))
				for range 3 {
					k.ExpectRetried(m)
				}
			},
			[]string{"want retried", "is dead", "attempt 3"},
		},
		"emitted, and nothing was": {
			func(k *runtimetest.Kit) { k.Publish("in", []byte("ok")); k.ExpectEmitted("out", 1) },
			[]string{`emitted to "out"`, "missing: 1", "not expected: nothing", "handled"},
		},
		"nothing emitted, and something was": {
			func(k *runtimetest.Kit) { k.Publish("in", []byte("emit")); k.ExpectEmitted("out") },
			[]string{"missing: nothing", "not expected: 1"},
		},
		"emitted of another type": {
			func(k *runtimetest.Kit) { k.Publish("in", []byte("emit")); runtimetest.Emitted[string](k, "out") },
			[]string{`emitted to "out": message 1 does not fit string`},
		},
		"a topic that nobody reads": {
			func(k *runtimetest.Kit) { k.Publish("im", []byte("ok")) },
			[]string{`publish to "im": no consumer reads it; there are: c (in)`},
		},
		"a body that is no JSON": {
			func(k *runtimetest.Kit) { k.Publish("in", func() {}) },
			[]string{`publish to "in": json: unsupported type`},
		},
		"a consumer that is not there": {
			func(k *runtimetest.Kit) { k.Only("d") }, []string{`there is no consumer "d"`},
		},
		"a status that is not there": {
			func(k *runtimetest.Kit) { k.Status("d") }, []string{`there is no consumer "d"`},
		},
		"a broker that is not there": {
			func(k *runtimetest.Kit) { k.Broker("audit") }, []string{`there is no broker "audit"; there are: [""]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := failed(t, scripted(), c.test)
			for _, want := range c.want {
				require.Contains(t, said, want)
			}
		})
	}
}

// TestHandlerThatNeverReturns: an expectation ends all the same, and so does
// the test, which says who is to blame.
func TestHandlerThatNeverReturns(t *testing.T) {
	t.Parallel()
	var release chan struct{}
	said := failed(t, runtimetest.Consumer("c", "in", func(*message.Message) ([]*message.Message, error) {
		<-release
		return nil, nil
	}, transport.Policy{}), func(k *runtimetest.Kit) {
		release = make(chan struct{})
		k.ExpectHandled(k.Publish("in", "x"))
	}, func() { close(release) }) // a bubble with a goroutine that is stuck is a panic
	require.Contains(t, said, `want handled, got: message m1 of "c" runs for 24h0m0s`)
	require.Contains(t, said, "a handler ran although its context was cancelled")
}

// TestWrongSubjects: a worker that cannot start says why.
func TestWrongSubjects(t *testing.T) {
	t.Parallel()
	never := func(k *runtimetest.Kit) { k.Errorf("was played") }
	for said, s := range map[string]runtimetest.Subject{
		"no such file":          runtimetest.File("nowhere.yaml"),
		`no handler "discrad"`:  runtimetest.YAML("broker: sqlite://x.db\nconsumers: {c: {topic: in, handler: discrad}}", builtin.All()),
		"nested far too deep":   runtimetest.YAML(strings.Repeat("[", 20000)),
		"broker is missing":     runtimetest.YAML("consumers: {c: {topic: in, handler: discard}}", builtin.All()),
		"no handler":            runtimetest.Consumer("c", "in", nil, transport.Policy{}),
		"TOPIC":                 runtimetest.YAML("broker: sqlite://x.db\nconsumers: {c: {topic: \"${TOPIC:?}\", handler: discard}}", builtin.All()),
		"registered twice":      runtimetest.YAML("broker: sqlite://x.db", builtin.All(), builtin.All()),
		"dead letter \"in\" is": runtimetest.Consumer("c", "in", handlers.Discard(), transport.Policy{DeadLetter: transport.DeadLetter{Topic: "in"}}),
	} {
		got := failed(t, s, never)
		require.Contains(t, got, said)
		require.NotContains(t, got, "was played")
	}
}
