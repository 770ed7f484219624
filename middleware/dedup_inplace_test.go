package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func plain(ctx context.Context, id string) *message.Message {
	return message.NewMessageWithContext(ctx, id, message.Payload("abc"))
}

func TestDedupInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newDedup(t, middleware.DedupOptions{})
		var e effects

		_, err := m(failing(errBoom))(plain(t.Context(), "1"))
		require.Equal(t, errBoom, err)
		require.Panics(t, func() {
			_, _ = m(func(*message.Message) ([]*message.Message, error) { panic("boom") })(plain(t.Context(), "1"))
		})
		_, err = m(e.handle)(plain(t.Context(), "1"))
		require.NoError(t, err, "neither has left a mark or a claim behind")
		_, err = m(e.handle)(plain(t.Context(), "1"))
		require.NoError(t, err, "a duplicate is acked")
		require.Equal(t, 1, e.of("1"))

		_, err = m(failing(skipped{errBoom}))(plain(t.Context(), "2"))
		require.NoError(t, err)
		_, err = m(e.handle)(plain(t.Context(), "2"))
		require.NoError(t, err)
		require.Zero(t, e.of("2"), "skipped is done")
	})
}

func TestDedupInPlaceHeldElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newDedup(t, middleware.DedupOptions{})
		running, finish := make(chan struct{}), make(chan struct{})
		ended := make(chan error)
		go func() {
			_, err := m(func(*message.Message) ([]*message.Message, error) {
				close(running)
				<-finish
				return nil, nil
			})(plain(t.Context(), "1"))
			ended <- err
		}()
		<-running

		start := time.Now()
		_, err := m(failing(nil))(plain(t.Context(), "1"))
		isHeld(t, err, time.Second)
		require.Less(t, time.Since(start), time.Second)
		require.Greater(t, time.Since(start), time.Duration(0), "no busy loop of nacks")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		_, err = m(failing(nil))(plain(ctx, "1"))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, time.Since(start))

		close(finish)
		require.NoError(t, <-ended)
	})
}

func TestDedupInPlaceTriesTheMarkAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
		var e effects
		h := newDedup(t, middleware.DedupOptions{Store: store})(func(m *message.Message) ([]*message.Message, error) {
			store.failWith(errBoom)
			return e.handle(m)
		})
		time.AfterFunc(time.Minute, func() { store.failWith(nil) })
		_, err := h(plain(t.Context(), "1"))
		require.NoError(t, err)
		require.Equal(t, 1, e.of("1"))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		_, err = h(plain(ctx, "2"))
		require.ErrorIs(t, err, context.Canceled, "stops with the Router, unacked")
	})
}

func TestDedupInPlaceUnderWatermillsRouter(t *testing.T) {
	t.Parallel()
	store := middleware.NewMemoryDedup(0)
	pub := &publisher{fails: 1}
	var e effects
	publish := watermillRouter(t, func(m *message.Message) ([]*message.Message, error) {
		_, _ = e.handle(m)
		return []*message.Message{message.NewMessage("out", nil)}, nil
	}, newDedup(t, middleware.DedupOptions{Store: store, Publisher: pub}))
	publish(message.NewMessage("1", nil))
	require.Equal(t, 2, e.of("1"), "not done before its outputs are confirmed")
	publish(message.NewMessage("1", nil))
	require.Equal(t, 2, e.of("1"))
	require.Equal(t, []string{"receipts"}, pub.topics)
}

func TestDedupInPlaceRefusesOutputsWithoutAPublisher(t *testing.T) {
	t.Parallel()
	returns := func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("out", nil)}, nil
	}
	_, err := newDedup(t, middleware.DedupOptions{})(returns)(plain(t.Context(), "1"))
	require.ErrorContains(t, err, "set DedupOptions.Publisher")
	require.Equal(t, transport.ActionDead, policy(t, transport.Backoff{}).Decide(err, 1).Action)
	_, err = newDedup(t, middleware.DedupOptions{Publisher: &publisher{}})(returns)(plain(t.Context(), "1"))
	require.ErrorContains(t, err, "without a topic")
}

func TestDedupInPlaceStoreDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e effects
		start := time.Now()
		_, err := newDedup(t, middleware.DedupOptions{Store: &spy{fail: errBoom}})(e.handle)(plain(t.Context(), "1"))
		require.ErrorIs(t, err, errBoom)
		require.GreaterOrEqual(t, time.Since(start), time.Second)
		require.Zero(t, e.of("1"))
		_, ok := errors.AsType[*transport.Wait](err)
		require.True(t, ok)
	})
}
