package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

// A service with a main of its own runs a worker inside, and publishes through
// the same broker. It logs where the service does.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type order struct {
		ID string `json:"id"`
	}
	w, err := worker.New(builtin.All(),
		worker.Config(config.Options{Data: []config.Data{{Name: "worker.yaml", Text: []byte(`
name: shop
broker: sqlite://` + filepath.Join(dir, "shop.db") + `
consumers: {charge: {topic: orders.placed, handler: charge}}
`)}}}),
		worker.Handle("charge", handlers.JSON(func(_ context.Context, o order) error {
			fmt.Println("charged", o.ID)
			stop() // a service would go on
			return nil
		})),
		worker.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	<-w.Router().Ready()

	running := context.WithoutCancel(ctx)
	producer, err := w.Transport("").OpenProducer(running) // "" is the main broker
	if err != nil {
		panic(err)
	}
	// nil means that the broker has confirmed it.
	if err := producer.Publish(running, "orders.placed", message.NewMessage("o-1", []byte(`{"id": "o-1"}`))); err != nil {
		panic(err)
	}
	if err := producer.Close(running); err != nil {
		panic(err)
	}
	fmt.Println(<-ended)
	// Output:
	// charged o-1
	// <nil>
}
