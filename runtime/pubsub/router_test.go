package pubsub_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
)

// A Router of Watermill's, with our middleware, on a transport of ours: what
// fails is tried again, what fails for good is in the dead letter, and a
// message whose handler is at work when the Router closes is acked.
func TestWatermillRouter(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
		require.NoError(w, err)
		policy, err := transport.NewRetryPolicy(transport.Backoff{Attempts: 3})
		require.NoError(w, err)
		router.AddMiddleware(
			middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{Retry: policy, Publisher: pubsub.NewPublisher(w.tr)}),
			middleware.Retry(policy),
			middleware.Recover(),
		)
		runs := map[string]int{}
		atWork, goOn := make(chan struct{}), make(chan struct{})
		router.AddHandler("charge", "orders", pubsub.NewSubscriber(w.tr, "charge"), "receipts", pubsub.NewPublisher(w.tr),
			func(m *message.Message) ([]*message.Message, error) {
				switch m.UUID {
				case "poison":
					runs[m.UUID]++
					return nil, errors.New("never")
				case "slow":
					close(atWork)
					<-goOn
				}
				return []*message.Message{message.NewMessage("receipt of "+m.UUID, nil)}, m.Context().Err()
			})
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(context.Background())
		go func() { ended <- router.Run(ctx) }()
		<-router.Running()

		w.publish("good", "poison")
		<-time.After(time.Minute)
		require.Equal(w, 3, runs["poison"])
		dead := w.broker.Messages("orders--charge--dead")
		require.Len(w, dead, 1)
		require.Equal(w, "poison", dead[0].UUID)
		require.Len(w, w.broker.Messages("receipts"), 1)

		w.publish("slow")
		<-atWork
		stop()
		<-time.After(3 * time.Second)
		close(goOn)
		require.NoError(w, <-ended)
		synctest.Wait()
		require.Equal(w, int64(3), w.broker.Acked("orders", "charge"))
		require.Len(w, w.broker.Messages("receipts"), 2)
	})
}
