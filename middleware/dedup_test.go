package middleware_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func newDedup(tb testing.TB, o middleware.DedupOptions) message.HandlerMiddleware {
	tb.Helper()
	if o.Store == nil {
		o.Store = middleware.NewMemoryDedup(0)
	}
	m, err := middleware.Dedup(o)
	require.NoError(tb, err)
	return m
}

// effects counts the successful runs of a handler by message id.
type effects struct {
	mu sync.Mutex
	n  map[string]int
}

func (e *effects) handle(m *message.Message) ([]*message.Message, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n == nil {
		e.n = make(map[string]int)
	}
	e.n[m.UUID]++
	return nil, nil
}

func (e *effects) of(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n[id]
}

func isHeld(t *testing.T, err error, left time.Duration) {
	t.Helper()
	w, ok := errors.AsType[*transport.Wait](err)
	require.True(t, ok, "%v", err)
	require.False(t, w.Spent)
	require.Greater(t, w.After, time.Duration(0))
	require.LessOrEqual(t, w.After, left)
}

// C02, F2: what counts is how the run ended, with its outputs confirmed.
func TestDedupMarksWhatTheRunCameTo(t *testing.T) {
	t.Parallel()
	for outcome, done := range map[transport.Outcome]bool{
		transport.Handled: true, transport.Skipped: true, transport.Retried: false, transport.Dead: false,
		transport.Interrupted: false, transport.Waiting: false, transport.Duplicate: false,
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			t.Parallel()
			h := newDedup(t, middleware.DedupOptions{})((&effects{}).handle)
			first := attempt(t, "1", 1)
			_, err := h(first.Message())
			require.NoError(t, err)
			_, err = h(attempt(t, "1", 1).Message())
			isHeld(t, err, time.Second)

			settle(t, first, outcome)
			_, err = h(attempt(t, "1", 2).Message())
			if done {
				require.Equal(t, transport.Already, err)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// F1: of two deliveries of one message at once, one runs, and the other is not
// acked before that one is done.
func TestDedupRace(t *testing.T) {
	t.Parallel()
	var e effects
	barrier := make(chan struct{}, 1)
	h := newDedup(t, middleware.DedupOptions{})(func(m *message.Message) ([]*message.Message, error) {
		<-barrier
		return e.handle(m)
	})
	for i := range 1000 {
		id := strconv.Itoa(i)
		var wg sync.WaitGroup
		var acked atomic.Int32
		for range 2 {
			wg.Go(func() {
				for {
					a := attempt(t, id, 1)
					_, err := h(a.Message())
					switch {
					case err == nil:
						settle(t, a, transport.Handled)
					case errors.Is(err, transport.Already):
						if e.of(id) != 1 {
							t.Error("acked as a duplicate of what was not done")
						}
					default: // held: let the other one go on, and come again
						select {
						case barrier <- struct{}{}:
						default:
						}
						continue
					}
					acked.Add(1)
					return
				}
			})
		}
		wg.Wait()
		select {
		case <-barrier:
		default:
		}
		require.Equal(t, 1, e.of(id))
		require.Equal(t, int32(2), acked.Load())
	}
}

// F7: an id that comes again with another body is not dropped as a duplicate.
// F8: topics and groups are independent, unless they are given one scope.
// spy is a store that can be made to fail, and remembers what it was asked.
// lines counts what is logged.
// F4: while the store fails, nothing runs and no attempt is spent.
// A mark that cannot be made is asked for again, and the claim lives on.
// Nobody asks again after the drain: the claim must not live on then.
// A claim is renewed for as long as its run lasts, and nobody renews it then.
// A process that stood still for longer than its lease has lost its claim: the
// other's stands, and it says that the message may be handled twice.
func TestDedupOfAnAttemptThatHasEnded(t *testing.T) {
	t.Parallel()
	h := newDedup(t, middleware.DedupOptions{})((&effects{}).handle)
	a := attempt(t, "1", 1)
	a.End()
	_, err := h(a.Message())
	require.ErrorIs(t, err, transport.ErrClosed)
	_, err = h(attempt(t, "1", 1).Message())
	require.NoError(t, err, "it has left no claim behind")
}

func BenchmarkDedup(b *testing.B) {
	h := newDedup(b, middleware.DedupOptions{})(failing(nil))
	d := delivery(b, "", make([]byte, 100), nil)
	ids := make([]string, 1<<18)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		d.ID = ids[i%len(ids)]
		i++
		a := transport.NewAttempt(d, "c", "g", 1, time.Time{})
		if _, err := h(a.Message()); err != nil {
			continue
		}
		_, hooks, _ := a.End()
		_ = hooks[0](b.Context(), transport.Handled)
	}
}
