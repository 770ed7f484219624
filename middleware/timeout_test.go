package middleware_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

const limit = 20 * time.Second

// under runs fn with the context that Timeout gives, and returns Timeout's error.
func under(parent context.Context, d time.Duration, fn func(ctx context.Context) error) error {
	msg := message.NewMessageWithContext(parent, "1", nil)
	_, err := middleware.Timeout(d)(func(m *message.Message) ([]*message.Message, error) { //nolint:contextcheck // it is the message's
		return nil, fn(m.Context())
	})(msg)
	if msg.Context() != parent {
		return errors.New("the message kept the attempt's context")
	}
	return err
}

func TestTimeoutCancelsTheAttempt(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]func(ctx context.Context) error{
		"asked for Done": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"never asked":    func(ctx context.Context) error { pass(limit); return ctx.Err() },
		"a child of it": func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			return child.Err()
		},
		"an AfterFunc": func(ctx context.Context) error {
			called := make(chan struct{})
			defer context.AfterFunc(ctx, func() { close(called) })()
			<-called
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var kept context.Context
				err := under(t.Context(), limit, func(ctx context.Context) error {
					kept = ctx //nolint:fatcontext // to look at it afterwards
					deadline, ok := ctx.Deadline()
					require.True(t, ok)
					require.Equal(t, start.Add(limit), deadline)
					require.NoError(t, ctx.Err())
					require.NoError(t, context.Cause(ctx))
					err := h(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, middleware.ErrTimeout, context.Cause(ctx))
					return err
				})
				require.Equal(t, limit, time.Since(start))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.EqualError(t, err, "timeout after 20s: context deadline exceeded")
				require.ErrorIs(t, kept.Err(), context.DeadlineExceeded)
			})
		})
	}
}

func TestTimeoutOfAnErrorThatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := func(err error) error {
			return under(t.Context(), limit, func(context.Context) error {
				pass(2 * limit)
				return err
			})
		}
		require.NoError(t, late(nil), "a late success is a success")

		err := late(errBoom)
		require.ErrorIs(t, err, errBoom)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		timeout, ok := errors.AsType[*middleware.TimeoutError](err)
		require.True(t, ok)
		require.Equal(t, limit, timeout.After)

		d := policy(t, transport.Backoff{}).Decide(late(permanent{errBoom}), 1)
		require.Equal(t, transport.ActionDead, d.Action, "permanent stays permanent")

		w := &transport.Wait{After: time.Second}
		require.Same(t, w, late(w))

		require.Equal(t, errBoom, under(t.Context(), limit, func(context.Context) error { return errBoom }), "in time")
		require.Equal(t, errBoom, under(t.Context(), 0, func(ctx context.Context) error {
			_, ok := ctx.Deadline()
			require.False(t, ok)
			return errBoom
		}), "no timeout")
	})
}

func TestTimeoutIsNotShutdown(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{transport.ErrShutdown, transport.ErrRevoked} {
		for _, asks := range []bool{true, false} {
			t.Run(cause.Error(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(limit/2, func() { cancel(cause) })
					err := under(parent, limit, func(ctx context.Context) error {
						if asks {
							<-ctx.Done()
						}
						pass(limit)
						pass(limit)
						require.ErrorIs(t, ctx.Err(), context.Canceled)
						require.Equal(t, cause, context.Cause(ctx))
						return ctx.Err()
					})
					require.Equal(t, context.Canceled, err, "untouched, though the deadline has passed too")
				})
			})
		}
	}
}

func TestTimeoutKeepsAnEarlierDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, asks := range []bool{true, false} {
			parent, cancel := context.WithTimeout(t.Context(), limit/2)
			want, _ := parent.Deadline()
			err := under(parent, limit, func(ctx context.Context) error {
				got, _ := ctx.Deadline()
				require.Equal(t, want, got)
				if asks {
					<-ctx.Done()
				}
				pass(limit)
				return ctx.Err()
			})
			require.Equal(t, context.DeadlineExceeded, err, "the parent's, not ours")
			cancel()
		}
	})
}

func TestTimeoutContextEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{true, false} {
		var kept context.Context
		require.NoError(t, under(t.Context(), limit, func(ctx context.Context) error {
			if kept = ctx; asks {
				_ = ctx.Done()
			}
			return nil
		}))
		require.Equal(t, context.Canceled, kept.Err())
		require.Equal(t, context.Canceled, context.Cause(kept))
		<-kept.Done()
		require.Equal(t, context.Canceled, kept.Err())
	}
}

func TestTimeoutEndsAfterAPanic(t *testing.T) {
	t.Parallel()
	msg := message.NewMessageWithContext(t.Context(), "1", nil)
	var kept context.Context
	require.Panics(t, func() {
		_, _ = middleware.Timeout(limit)(func(m *message.Message) ([]*message.Message, error) { //nolint:contextcheck // it is the message's
			kept = m.Context() //nolint:fatcontext // to look at it afterwards
			panic("boom")
		})(msg)
	})
	require.Equal(t, t.Context(), msg.Context())
	require.Error(t, kept.Err())
}

func TestTimeoutFindsTheAttempt(t *testing.T) {
	t.Parallel()
	a := attempt(t, "1", 1)
	require.NoError(t, under(a, limit, func(ctx context.Context) error {
		require.Same(t, a, transport.AttemptFrom(ctx))
		_ = ctx.Done()
		require.Same(t, a, transport.AttemptFrom(ctx))
		return nil
	}))
}

// The context says at every moment what the standard library's would, whoever
// asks it for what and when. (Where nobody asks between the deadline and the
// parent's own end, it says the parent's: that is never taken for a timeout.)
func TestTimeoutContextIsTheStandardOne(t *testing.T) {
	t.Parallel()
	const cancelParent, askDone = 0, -1 // other steps are seconds
	seconds := rapid.Map(rapid.IntRange(1, 10), func(n int) time.Duration { return time.Duration(n) * time.Second })
	rapid.Check(t, func(rt *rapid.T) {
		d := seconds.Draw(rt, "timeout")
		parents := rapid.SampledFrom([]time.Duration{0, 3*time.Second + 1, 7*time.Second + 1}).Draw(rt, "the parent's timeout")
		steps := rapid.SliceOfN(rapid.IntRange(askDone, 5), 0, 6).Draw(rt, "steps")
		bubble(t, func(t *testing.T) {
			t.Helper()
			parent, cancel := context.WithCancelCause(t.Context())
			if parents > 0 {
				p, cancel := context.WithTimeout(parent, parents)
				defer cancel()
				parent = p
			}
			want, cancelWant := context.WithTimeoutCause(parent, d, middleware.ErrTimeout)
			defer cancelWant()
			var got context.Context
			same := func() {
				synctest.Wait()
				require.Equal(rt, want.Err(), got.Err())
				require.Equal(rt, context.Cause(want), context.Cause(got))
			}
			_ = under(parent, d, func(ctx context.Context) error {
				got = ctx //nolint:fatcontext // to look at it afterwards
				for _, step := range steps {
					switch step {
					case cancelParent:
						cancel(transport.ErrRevoked)
					case askDone:
						_ = got.Done()
					default:
						for range step {
							pass(time.Second)
							same()
						}
					}
					same()
				}
				return nil
			})
			cancelWant()
			same()
			cancel(transport.ErrShutdown)
			pass(time.Minute)
			same()
			<-got.Done()
		})
	})
}

func TestTimeoutContextIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	for range 200 {
		var wg sync.WaitGroup
		_ = under(t.Context(), limit, func(ctx context.Context) error {
			for range 4 {
				wg.Go(func() { <-ctx.Done() })
				wg.Go(func() { _, _ = ctx.Err(), context.Cause(ctx) })
				wg.Go(func() { _ = ctx.Value("x") })
			}
			return nil
		})
		wg.Wait()
	}
}

//nolint:paralleltest // AllocsPerRun counts the whole process
func TestTimeoutCostsOneAllocation(t *testing.T) {
	h := middleware.Timeout(limit)(failing(nil))
	msg := attempt(t, "1", 1).Message()
	require.InDelta(t, 1, testing.AllocsPerRun(100, func() { _, _ = h(msg) }), 0)
}

func TestTimeoutUnderWatermillsRouter(t *testing.T) {
	t.Parallel()
	runs := 0
	publish := watermillRouter(t, func(m *message.Message) ([]*message.Message, error) {
		if runs++; runs == 1 {
			<-m.Context().Done()
			return nil, m.Context().Err()
		}
		return nil, m.Context().Err()
	}, middleware.Retry(policy(t, transport.Backoff{InitialInterval: time.Millisecond})), middleware.Timeout(50*time.Millisecond))
	publish(message.NewMessage("1", nil))
	require.Equal(t, 2, runs, "the second attempt had a context of its own")
}

func BenchmarkTimeout(b *testing.B) { benchmarkLink(b, middleware.Timeout(limit)) }

func BenchmarkTimeoutDone(b *testing.B) {
	h := middleware.Timeout(limit)(func(m *message.Message) ([]*message.Message, error) {
		_ = m.Context().Done()
		return nil, nil
	})
	msg := attempt(b, "1", 1).Message()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h(msg)
	}
}

// benchmarkLink measures what a link adds to a handler that does nothing.
func benchmarkLink(b *testing.B, links ...message.HandlerMiddleware) {
	b.Helper()
	h := chain(failing(nil), links...)
	msg := attempt(b, "1", 1).Message()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h(msg)
	}
}
