package transport_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

func delivery(ctx context.Context) *transport.Delivery {
	return &transport.Delivery{
		ID: "id", Payload: []byte("body"), Headers: transport.HeadersOf(map[string]string{"a": "1", transport.KeyHeader: "k"}),
		Topic: "t", Partition: 2, Offset: 7, Key: "k", Assignment: transport.NewAssignment(ctx, "t", 2),
	}
}

func TestAttemptIsACopy(t *testing.T) {
	t.Parallel()
	d := delivery(t.Context())
	defer d.Assignment.Revoke()
	for n := 1; n <= 2; n++ {
		m := transport.NewAttempt(d, "c", "g", n, time.Time{}).Message()
		require.Equal(t, "id", m.UUID)
		require.Equal(t, "body", string(m.Payload))
		require.Equal(t, message.Metadata{"a": "1", transport.KeyHeader: "k"}, m.Metadata)
		m.Payload[0] = 'X'
		m.Payload = append(m.Payload, "more"...)
		m.UUID = "other"
		m.Metadata["a"] = "2"
		m.Metadata["b"] = "3"
	}
	require.Equal(t, "body", string(d.Payload))
	require.Equal(t, "1", d.Headers.Get("a"))
	require.Len(t, d.Headers, 2)
	require.Equal(t, "id", d.ID)
}

func TestAttemptKeepsNilAndEmptyApart(t *testing.T) {
	t.Parallel()
	d := delivery(t.Context())
	defer d.Assignment.Revoke()
	d.Payload, d.Headers = nil, nil
	m := transport.NewAttempt(d, "c", "g", 1, time.Time{}).Message()
	require.Nil(t, m.Payload)
	require.NotNil(t, m.Metadata, "a handler may set headers")
	d.Payload = []byte{}
	require.Equal(t, message.Payload{}, transport.NewAttempt(d, "c", "g", 1, time.Time{}).Message().Payload)
}

// A message made as a literal has none of NewMessage's channels.
func TestAttemptMessageTakesAckAndNack(t *testing.T) {
	t.Parallel()
	d := delivery(t.Context())
	defer d.Assignment.Revoke()
	m := transport.NewAttempt(d, "c", "g", 1, time.Time{}).Message()
	require.True(t, m.Ack())
	require.True(t, m.Ack())
	require.False(t, m.Nack())
}

func TestAttemptFrom(t *testing.T) {
	t.Parallel()
	type key struct{}
	d := delivery(context.WithValue(t.Context(), key{}, "value"))
	defer d.Assignment.Revoke()
	first := time.Unix(1, 0)
	a := transport.NewAttempt(d, "c", "g", 3, first)
	ctx, cancel := context.WithTimeout(context.WithValue(a.Message().Context(), key{}, "inner"), time.Minute)
	defer cancel()

	require.Same(t, a, transport.AttemptFrom(ctx))
	require.Same(t, a, transport.AttemptFrom(a.Message().Context()))
	require.Nil(t, transport.AttemptFrom(t.Context()))
	require.Equal(t, "value", a.Value(key{}))
	require.Equal(t, "inner", ctx.Value(key{}))
	require.Nil(t, a.Value([]string{"a key that cannot be compared"}))
	require.Same(t, d, a.Delivery())
	require.Equal(t, "c", a.Consumer())
	require.Equal(t, "g", a.Group())
	require.Equal(t, 3, a.Number())
	require.Equal(t, first, a.FirstFailure())
}

func TestAttemptGathers(t *testing.T) {
	t.Parallel()
	d := delivery(t.Context())
	defer d.Assignment.Revoke()
	a := transport.NewAttempt(d, "c", "g", 1, time.Time{})
	ctx := a.Message().Context()
	one, two, three := &message.Message{}, &message.Message{}, &message.Message{}
	require.NoError(t, transport.Emit(ctx, "x", one, two))
	require.NoError(t, transport.Emit(ctx, "", three))
	var ran []int
	for i := range 2 {
		require.True(t, transport.OnSettle(ctx, func(context.Context, transport.Outcome) error {
			ran = append(ran, i)
			return nil
		}))
	}
	require.True(t, transport.MarkDead(ctx, transport.DeadMark{Reason: "first"}))
	require.True(t, transport.MarkDead(ctx, transport.DeadMark{Reason: "second"}))

	outputs, hooks, dead := a.End()
	require.Equal(t, []transport.Output{{"x", one}, {"x", two}, {"", three}}, outputs)
	require.Equal(t, "second", dead.Reason)
	for _, h := range hooks {
		require.NoError(t, h(ctx, transport.Handled))
	}
	require.Equal(t, []int{0, 1}, ran)

	require.ErrorIs(t, transport.Emit(ctx, "x", one), transport.ErrClosed)
	require.False(t, transport.OnSettle(ctx, func(context.Context, transport.Outcome) error { return errors.New("late") }))
	require.False(t, transport.MarkDead(ctx, transport.DeadMark{Reason: "late"}))
	outputs, hooks, dead = a.End()
	require.Len(t, outputs, 3)
	require.Len(t, hooks, 2)
	require.Equal(t, "second", dead.Reason)
}

func TestWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, transport.Emit(t.Context(), "x"), transport.ErrUnsupported)
	require.False(t, transport.OnSettle(t.Context(), nil))
	require.False(t, transport.MarkDead(t.Context(), transport.DeadMark{}))
}

func TestAttemptIsCancelledWithItsCause(t *testing.T) {
	t.Parallel()
	for want, end := range map[error]func(*transport.Assignment, context.CancelCauseFunc){
		transport.ErrRevoked:  func(a *transport.Assignment, _ context.CancelCauseFunc) { a.Revoke() },
		transport.ErrShutdown: func(_ *transport.Assignment, stop context.CancelCauseFunc) { stop(transport.ErrShutdown) },
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				d := delivery(base)
				a := transport.NewAttempt(d, "c", "g", 1, time.Time{})
				inner, cancel := context.WithTimeout(a.Message().Context(), time.Hour)
				defer cancel()
				called := make(chan error, 2)
				context.AfterFunc(a, func() { called <- context.Cause(a) })
				context.AfterFunc(inner, func() { called <- context.Cause(inner) })
				synctest.Wait()
				require.Empty(t, called)
				require.NoError(t, a.Err())

				end(d.Assignment, stop)
				require.Equal(t, want, <-called)
				require.Equal(t, want, <-called)
				require.ErrorIs(t, a.Err(), context.Canceled)
			})
		})
	}
}

func TestAssignmentEndsInTwoSteps(t *testing.T) {
	t.Parallel()
	a := transport.NewAssignment(t.Context(), "t", 0)
	var calls []string
	a.OnLeave(func() { calls = append(calls, "early") })
	require.False(t, a.Leaving())

	a.Leave()
	require.Equal(t, []string{"early"}, calls)
	require.True(t, a.Leaving())
	require.False(t, a.Revoked())
	require.NoError(t, a.Context().Err())
	a.OnLeave(func() { calls = append(calls, "late") })
	require.Equal(t, []string{"early", "late"}, calls)

	a.Revoke()
	a.Revoke()
	a.Leave()
	require.True(t, a.Revoked())
	require.Equal(t, transport.ErrRevoked, context.Cause(a.Context()))
	require.Equal(t, []string{"early", "late"}, calls, "once each")
}

func TestAssignmentRevokedAfterShutdown(t *testing.T) {
	t.Parallel()
	base, stop := context.WithCancelCause(t.Context())
	a := transport.NewAssignment(base, "t", 0)
	stop(transport.ErrShutdown)
	require.False(t, a.Revoked())
	a.Revoke()
	require.True(t, a.Revoked())
	require.Equal(t, transport.ErrShutdown, context.Cause(a.Context()), "the first cause stays")
}

// TestOnRevoke: it is called once, after the context has ended and OnLeave was
// told, and Revoke returns after it; not by Leave, and not by a shutdown.
func TestOnRevoke(t *testing.T) {
	t.Parallel()
	base, stop := context.WithCancelCause(t.Context())
	a := transport.NewAssignment(base, "t", 0)
	var calls []string
	a.OnRevoke(func() {
		require.Equal(t, transport.ErrRevoked, context.Cause(a.Context()))
		require.True(t, a.Revoked())
		require.True(t, a.Leaving())
		calls = append(calls, "revoke")
		a.OnRevoke(func() { calls = append(calls, "at once") })
	})
	a.Leave()
	require.Empty(t, calls)
	a.Revoke()
	require.Equal(t, []string{"revoke", "at once"}, calls)
	a.Revoke()
	a.Leave()
	a.OnRevoke(func() { calls = append(calls, "late") })
	require.Equal(t, []string{"revoke", "at once", "late"}, calls, "once each")
	stop(transport.ErrShutdown)

	base, stop = context.WithCancelCause(t.Context())
	a, calls = transport.NewAssignment(base, "t", 0), nil
	a.OnRevoke(func() { calls = append(calls, "revoke") })
	a.OnLeave(func() { calls = append(calls, "leave") })
	stop(transport.ErrShutdown)
	require.Empty(t, calls, "a shutdown is not the end of the spell")
	a.Revoke()
	require.Equal(t, []string{"leave", "revoke"}, calls, "without Leave: both, in this order")
}

// TestRevokedMeanwhile: whoever registers while the spell ends is called
// exactly once, whichever comes first.
func TestRevokedMeanwhile(t *testing.T) {
	t.Parallel()
	for range 200 {
		a := transport.NewAssignment(t.Context(), "t", 0)
		var left, revoked atomic.Int64
		var both sync.WaitGroup
		both.Go(a.Revoke)
		both.Go(func() {
			a.OnLeave(func() { left.Add(1) })
			a.OnRevoke(func() { revoked.Add(1) })
		})
		both.Wait()
		require.Equal(t, int64(1), left.Load())
		require.Equal(t, int64(1), revoked.Load())
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	h := transport.Headers{{"a", "1"}, {"b", "2"}, {"a", "3"}}
	require.Equal(t, "3", h.Get("a"))
	require.Empty(t, h.Get("c"))
	require.Equal(t, map[string]string{"a": "3", "b": "2"}, h.Map())
	require.Equal(t, transport.Headers{{"a", "3"}, {"b", "2"}}, transport.HeadersOf(h.Map()))
	require.Empty(t, transport.HeadersOf(nil))
	require.NotNil(t, transport.Headers(nil).Map())
}

func TestDeliverySizeAndCoordinates(t *testing.T) {
	t.Parallel()
	d := delivery(t.Context())
	defer d.Assignment.Revoke()
	require.Equal(t, int64(len("body")+len("id")+len("a1")+len(transport.KeyHeader)+len("k")), d.Size())
	require.Equal(t, "t/2/7", d.Coordinates())
}
