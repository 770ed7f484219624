package middleware_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func TestRecoverTurnsPanicsIntoErrors(t *testing.T) {
	t.Parallel()
	var nilMap map[string]int
	for name, panics := range map[string]func(){
		"value": func() { panic("boom") },
		"error": func() { panic(errBoom) },
		"nil":   func() { panic(new(transport.Panicked).Value) },
		"map":   func() { nilMap["a"] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := middleware.Recover()(func(*message.Message) ([]*message.Message, error) {
				panics()
				return nil, nil
			})
			out, err := h(message.NewMessage("1", nil))
			require.Empty(t, out)
			p, ok := errors.AsType[*transport.Panicked](err)
			require.True(t, ok)
			require.NotNil(t, p.Value)
			require.Contains(t, string(p.Stack), "TestRecoverTurnsPanicsIntoErrors")
			require.Equal(t, transport.ActionWait, policy(t, transport.Backoff{}).Decide(err, 1).Action, "tried again")
		})
	}
}

func TestRecoverKeepsAPermanentErrorPermanent(t *testing.T) {
	t.Parallel()
	h := middleware.Recover()(func(*message.Message) ([]*message.Message, error) { panic(permanent{errBoom}) })
	_, err := h(message.NewMessage("1", nil))
	require.ErrorIs(t, err, errBoom)
	require.Equal(t, transport.ActionDead, policy(t, transport.Backoff{}).Decide(err, 1).Action)
}

func TestRecoverLetsGoexitPass(t *testing.T) {
	t.Parallel()
	h := middleware.Recover()(func(*message.Message) ([]*message.Message, error) {
		goruntime.Goexit()
		return nil, nil
	})
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = h(message.NewMessage("1", nil))
		returned = true
	}()
	<-ended
	require.False(t, returned)
}

func TestRecoverUnderWatermillsRouter(t *testing.T) {
	t.Parallel()
	runs := 0
	publish := watermillRouter(t, func(*message.Message) ([]*message.Message, error) {
		if runs++; runs == 1 {
			panic(errBoom)
		}
		return nil, nil
	}, middleware.Recover())
	publish(message.NewMessageWithContext(context.Background(), "1", nil))
	require.Equal(t, 2, runs, "nacked, then handled")
}

func BenchmarkRecover(b *testing.B) { benchmarkLink(b, middleware.Recover()) }
