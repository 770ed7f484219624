package pubsub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	kinds "github.com/leat-io/leat/runtime/transport/watermill"
)

// odd is a Pub/Sub that does what none should.
type odd struct {
	subscribe func(ctx context.Context) (<-chan *message.Message, error)
	publish   func() error
}

func (o odd) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	return o.subscribe(ctx)
}

func (o odd) Publish(string, ...*message.Message) error { return o.publish() }
func (odd) Close() error                                { return nil }

// TestOddPubSub: a Pub/Sub that misbehaves is named in its own consumer's
// status and tried again with growing pauses, while another consumer of the same
// router goes on and the router stops in time.
func TestOddPubSub(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		subscribe func(ctx context.Context) (<-chan *message.Message, error)
		state     runtime.State
		why       string
	}{
		"closes its channel at once": {func(context.Context) (<-chan *message.Message, error) {
			out := make(chan *message.Message)
			close(out)
			return out, nil
		}, runtime.StateReconnecting, `topic "orders": subscription has ended`},
		"fails to subscribe": {func(context.Context) (<-chan *message.Message, error) {
			return nil, errors.New("no such stream")
		}, runtime.StateReconnecting, "no such stream"},
		"panics": {func(context.Context) (<-chan *message.Message, error) {
			panic("at once")
		}, runtime.StateReconnecting, "panic: at once"},
		"gives no channel": {func(context.Context) (<-chan *message.Message, error) {
			return nil, nil
		}, runtime.StateReconnecting, "no channel"},
		"never closes its channel": {nil, runtime.StateRunning, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				out := make(chan *message.Message)
				bad := odd{subscribe: func(ctx context.Context) (<-chan *message.Message, error) {
					tries++
					if of.subscribe == nil {
						return out, nil
					}
					return of.subscribe(ctx)
				}, publish: func() error { return nil }}
				good := memory.NewBroker(memory.Options{})
				router := runtime.NewRouter(runtime.Options{})
				handled := make(chan string, 1)
				h := func(m *message.Message) ([]*message.Message, error) {
					handled <- m.UUID
					return nil, nil
				}
				p := transport.Policy{Group: "g", DeadLetter: transport.DeadLetter{Mode: transport.DeadBlock}}
				require.NoError(t, router.Consume("bad", kinds.Transport("odd", bad, bad), "orders", h, p))
				require.NoError(t, router.Consume("good", good.Transport(), "orders", h, p))
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- router.Run(ctx) }()

				pub, err := good.Transport().OpenProducer(ctx)
				require.NoError(t, err)
				<-time.After(10 * time.Minute)
				require.NoError(t, pub.Publish(ctx, "orders", message.NewMessage("m", nil)))
				require.Equal(t, "m", <-handled)
				st := router.Status()[0]
				require.Equal(t, of.state, st.State)
				require.Contains(t, st.Why, of.why)
				require.Less(t, tries, 200, "the pauses grow")
				began := time.Now()
				stop()
				require.NoError(t, <-ended)
				require.Less(t, time.Since(began), time.Minute)
				close(out)
			})
		})
	}
}

// A Publisher that panics, or fails for ever, is an output that is not
// confirmed: its message stays.
func TestOddPublisher(t *testing.T) {
	t.Parallel()
	for name, publish := range map[string]func() error{
		"panics": func() error { panic("at once") },
		"fails":  func() error { return errors.New("at once") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := message.NewMessage("m", nil)
				out := make(chan *message.Message, 1)
				out <- m
				bad := odd{subscribe: func(ctx context.Context) (<-chan *message.Message, error) {
					context.AfterFunc(ctx, func() { close(out) })
					return out, nil
				}, publish: publish}
				router := runtime.NewRouter(runtime.Options{DrainTimeout: time.Second})
				h := func(*message.Message) ([]*message.Message, error) {
					return []*message.Message{message.NewMessage("out", nil)}, nil
				}
				p := transport.Policy{Group: "g", PublishTo: "receipts", DeadLetter: transport.DeadLetter{Mode: transport.DeadBlock}}
				require.NoError(t, router.Consume("bad", kinds.Transport("odd", bad, bad), "orders", h, p))
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- router.Run(ctx) }()
				<-time.After(time.Minute)
				st := router.Status()[0]
				require.Equal(t, runtime.StateBlocked, st.State)
				require.True(t, strings.Contains(st.Why, "output receipts") && strings.Contains(st.Why, "at once"), st.Why)
				stop()
				require.ErrorIs(t, <-ended, runtime.ErrDrainTimeout)
				select {
				case <-m.Acked():
					t.Error("it is acked, and its output is nowhere")
				default:
				}
			})
		})
	}
}
