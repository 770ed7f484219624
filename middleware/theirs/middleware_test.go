// Package theirs_test has Watermill's own middleware under Leat's engine. That
// Leat's works under Watermill's Router is tested beside each link.
package theirs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	theirs "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

var errBoom = errors.New("boom")

// stage is a broker in a bubble, and what a handler on it has done.
type stage struct {
	*testing.T

	broker *memory.Broker
	tr     transport.Transport
	router *runtime.Router

	mu   sync.Mutex
	runs []string // ids, one for each run
	done []string // of the runs that succeeded
}

// underLeat runs links of Watermill's inside Leat's own chain, around a handler
// that fails as often as fails says for an id.
func underLeat(t *testing.T, links func(s *stage) []message.HandlerMiddleware, fails map[string]int, check func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		policy := s.policy()
		policy.Use = links(s)
		policy.Middleware = middleware.Default(policy)
		s.router = runtime.NewRouter(runtime.Options{})
		require.NoError(t, s.router.Consume("charge", s.tr, "orders", s.handler(fails), policy))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.router.Run(ctx) }()
		<-s.router.Ready()
		check(s)
		stop()
		require.NoError(t, <-ended)
	})
}

func newStage(t *testing.T) *stage {
	t.Helper()
	b := memory.NewBroker(memory.Options{})
	return &stage{T: t, broker: b, tr: b.Transport()}
}

func (s *stage) policy() transport.Policy {
	retry, err := transport.NewRetryPolicy(transport.Backoff{Attempts: 3, InitialInterval: time.Second, Jitter: -1})
	require.NoError(s, err)
	return transport.Policy{Retry: retry, PublishTo: "receipts"}
}

func (s *stage) handler(fails map[string]int) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs = append(s.runs, m.UUID)
		if fails[m.UUID] > 0 {
			fails[m.UUID]--
			return nil, errBoom
		}
		s.done = append(s.done, m.UUID)
		return []*message.Message{message.NewMessage("receipt of "+m.UUID, nil)}, nil
	}
}

func (s *stage) publish(ids ...string) {
	s.Helper()
	p := pubsub.NewPublisher(s.tr)
	for _, id := range ids {
		m := message.NewMessage(id, []byte(id))
		theirs.SetCorrelationID("chain-of-"+id, m)
		require.NoError(s, p.Publish("orders", m))
	}
	require.NoError(s, p.Close())
}

// settle lets time go by until nothing happens any more.
func (s *stage) settle() {
	<-time.After(10 * time.Minute)
	synctest.Wait()
}

func (s *stage) outcomes() string {
	st := s.router.Status()[0]
	var out []string
	for _, o := range []transport.Outcome{transport.Handled, transport.Retried, transport.Dead} {
		out = append(out, fmt.Sprintf("%s %d", o, st.Count(o)))
	}
	return strings.Join(out, ", ")
}

func only(l ...message.HandlerMiddleware) func(*stage) []message.HandlerMiddleware {
	return func(*stage) []message.HandlerMiddleware { return l }
}

// Their Retry works inside one attempt, and holds its slot.
func TestTheirRetry(t *testing.T) {
	t.Parallel()
	link := theirs.Retry{MaxRetries: 2, InitialInterval: 10 * time.Millisecond, Multiplier: 2, MaxInterval: time.Second}.Middleware
	underLeat(t, only(link), map[string]int{"twice": 2, "thrice": 3}, func(s *stage) {
		s.publish("twice", "thrice")
		s.settle()
		require.Len(s, s.runs, 3+4)
		require.Equal(s, "handled 2, retried 1, dead 0", s.outcomes())
	})
}

// Their PoisonQueue takes every error at once, so that nothing is tried again.
func TestTheirPoisonQueue(t *testing.T) {
	t.Parallel()
	underLeat(t, func(s *stage) []message.HandlerMiddleware {
		link, err := theirs.PoisonQueue(pubsub.NewPublisher(s.tr), "poison")
		require.NoError(s, err)
		return []message.HandlerMiddleware{link}
	}, map[string]int{"bad": 1}, func(s *stage) {
		s.publish("good", "bad")
		s.settle()
		require.Equal(s, "handled 2, retried 0, dead 0", s.outcomes())
		poison := s.broker.Messages("poison")
		require.Len(s, poison, 1)
		require.Equal(s, "bad", poison[0].UUID)
		require.Equal(s, "boom", poison[0].Metadata.Get(theirs.ReasonForPoisonedKey))
		require.Empty(s, poison[0].Metadata.Get(theirs.PoisonedTopicKey), "what Watermill's Router puts into contexts is not there")
	})
}

func TestTheirCorrelationID(t *testing.T) {
	t.Parallel()
	underLeat(t, only(theirs.CorrelationID), nil, func(s *stage) {
		s.publish("a")
		s.settle()
		require.Equal(s, "chain-of-a", theirs.MessageCorrelationID(s.broker.Messages("receipts")[0]))
	})
}

func TestTheirThrottle(t *testing.T) {
	t.Parallel()
	underLeat(t, func(*stage) []message.HandlerMiddleware {
		return []message.HandlerMiddleware{theirs.NewThrottle(1, time.Second).Middleware} // its clock is the bubble's
	}, nil, func(s *stage) {
		s.publish("a", "b", "c", "d")
		<-time.After(2500 * time.Millisecond)
		synctest.Wait()
		require.Len(s, s.done, 2, "one a second")
		s.settle()
		require.Equal(s, "handled 4, retried 0, dead 0", s.outcomes())
	})
}

// Each attempt has a message of its own, so the context that their Timeout
// leaves behind spoils no later one.
func TestTheirTimeout(t *testing.T) {
	t.Parallel()
	slow := map[string]bool{"slow": true}
	underLeat(t, func(s *stage) []message.HandlerMiddleware {
		return []message.HandlerMiddleware{theirs.Timeout(time.Second), func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				if slow[m.UUID] {
					slow[m.UUID] = false
					<-m.Context().Done()
					return nil, m.Context().Err()
				}
				require.NoError(s, m.Context().Err())
				return next(m)
			}
		}}
	}, nil, func(s *stage) {
		s.publish("slow")
		s.settle()
		require.Equal(s, "handled 1, retried 1, dead 0", s.outcomes())
	})
}

// Known bad: their Deduplicator marks before the handler runs, so what fails
// once is taken for a duplicate of itself. Ours is what to replace it with.
func TestTheirDeduplicatorLosesWhatFailsOnce(t *testing.T) {
	t.Parallel()
	underLeat(t, func(*stage) []message.HandlerMiddleware {
		return []message.HandlerMiddleware{(&theirs.Deduplicator{KeyFactory: theirs.NewMessageHasherSHA256(1 << 20), Repository: forever{}}).Middleware}
	}, map[string]int{"once": 1}, func(s *stage) {
		s.publish("once")
		s.settle()
		require.Equal(s, "handled 1, retried 1, dead 0", s.outcomes())
		require.Empty(s, s.done, "if it is handled now, it can be taken off the list of what to replace")
	})
}

// forever is a repository without the goroutine of theirs.
type forever map[string]bool

func (f forever) IsDuplicate(_ context.Context, key string) (bool, error) {
	was := f[key]
	f[key] = true
	return was, nil
}

func TestOurDedupKeepsWhatFailsOnce(t *testing.T) {
	t.Parallel()
	underLeat(t, func(s *stage) []message.HandlerMiddleware {
		link, err := middleware.Dedup(middleware.DedupOptions{Store: middleware.NewMemoryDedup(0)})
		require.NoError(s, err)
		return []message.HandlerMiddleware{link}
	}, map[string]int{"once": 1}, func(s *stage) {
		s.publish("once", "once")
		s.settle()
		require.Equal(s, []string{"once"}, s.done)
	})
}

// Their CircuitBreaker returns errors while it is open, which spend attempts of
// messages that nothing is wrong with.
func TestTheirCircuitBreakerSpendsAttempts(t *testing.T) {
	t.Parallel()
	underLeat(t, func(*stage) []message.HandlerMiddleware {
		return []message.HandlerMiddleware{theirs.NewCircuitBreaker(gobreaker.Settings{
			Timeout: time.Hour, ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 1 },
		}).Middleware}
	}, map[string]int{"bad": 1}, func(s *stage) {
		s.publish("bad")
		synctest.Wait()
		s.publish("good")
		s.settle()
		require.Equal(s, "handled 0, retried 4, dead 2", s.outcomes())
		require.Equal(s, []string{"bad"}, s.runs)
	})
}

// Known bad: their DelayOnError takes its multiplier for an integer, and writes
// a wish that no transport here reads. The error goes on to Leat's own retry.
func TestTheirDelayOnErrorDoesNotGrow(t *testing.T) {
	t.Parallel()
	delays := []string{}
	link := theirs.DelayOnError{InitialInterval: time.Second, MaxInterval: time.Minute, Multiplier: 1.5}
	look := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			for range 3 {
				if _, err := next(m); err == nil {
					return nil, nil
				}
				delays = append(delays, m.Metadata.Get("_watermill_delayed_for"))
			}
			return nil, errBoom
		}
	}
	underLeat(t, only(look, link.Middleware), map[string]int{"bad": 3}, func(s *stage) {
		s.publish("bad")
		s.settle()
		require.Equal(s, []string{"1s", "1s", "1s"}, delays)
		require.Equal(s, "handled 1, retried 1, dead 0", s.outcomes())
	})
}

func TestTheirDuplicatorRunsTwice(t *testing.T) {
	t.Parallel()
	underLeat(t, only(theirs.Duplicator), nil, func(s *stage) {
		s.publish("a")
		s.settle()
		require.Equal(s, []string{"a", "a"}, s.done)
	})
}

func TestTheirIgnoreErrors(t *testing.T) {
	t.Parallel()
	underLeat(t, only(theirs.NewIgnoreErrors([]error{errBoom}).Middleware), map[string]int{"bad": 1}, func(s *stage) {
		s.publish("bad")
		s.settle()
		require.Equal(s, "handled 1, retried 0, dead 0", s.outcomes())
	})
}

// An ack that a handler gives changes nothing: what fails after it comes again.
func TestTheirInstantAckChangesNothing(t *testing.T) {
	t.Parallel()
	underLeat(t, only(theirs.InstantAck), map[string]int{"bad": 1}, func(s *stage) {
		s.publish("bad")
		s.settle()
		require.Equal(s, "handled 1, retried 1, dead 0", s.outcomes())
	})
}

func TestTheirRandomFailAndPanicAndRecoverer(t *testing.T) {
	t.Parallel()
	underLeat(t, only(theirs.Recoverer, theirs.RandomPanic(1)), nil, func(s *stage) {
		s.publish("a")
		s.settle()
		require.Equal(s, "handled 0, retried 2, dead 1", s.outcomes())
	})
}

func TestTheirRandomFail(t *testing.T) {
	t.Parallel()
	underLeat(t, only(theirs.RandomFail(1)), nil, func(s *stage) {
		s.publish("a")
		s.settle()
		require.Equal(s, "handled 0, retried 2, dead 1", s.outcomes())
		require.Len(s, s.broker.Messages("orders--charge--dead"), 1)
	})
}
