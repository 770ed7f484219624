package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

// The links of a consumer, as the engine runs them.
func ExampleDefault() {
	dedup, err := middleware.Dedup(middleware.DedupOptions{
		Key:   "payload.order_id",
		Store: middleware.NewMemoryDedup(0),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := transport.Policy{Dedup: dedup, Timeout: 20 * time.Second}
	policy.Middleware = middleware.Default(policy)
	fmt.Println(len(policy.Middleware), "links")
	// Output: 5 links
}

// Under Watermill's own Router: a message that fails for good ends in the dead
// letter, and is acked only when that has it.
func ExampleDeadLetter() {
	pubSub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := transport.NewRetryPolicy(transport.Backoff{Attempts: 2, InitialInterval: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	router.AddMiddleware(
		middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{Retry: policy, Publisher: pubSub}),
		middleware.Retry(policy),
		middleware.Timeout(20*time.Second),
		middleware.Recover(),
	)
	router.AddConsumerHandler("charge", "orders", pubSub, func(*message.Message) error {
		return errors.New("card declined")
	})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dead, err := pubSub.Subscribe(ctx, "orders--charge--dead")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = router.Run(ctx) }()
	<-router.Running()
	if err := pubSub.Publish("orders", message.NewMessage("1", message.Payload("an order"))); err != nil {
		fmt.Println(err)
		return
	}

	m := <-dead
	m.Ack()
	fmt.Println(m.UUID, string(m.Payload))
	fmt.Println(m.Metadata[transport.DeadReasonHeader])
	fmt.Println(m.Metadata[transport.DeadErrorHeader])
	_ = router.Close()
	_ = pubSub.Close()
	// Output:
	// 1 an order
	// attempts used up
	// given up after 2 attempts: card declined
}
