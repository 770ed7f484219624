// Command watermill is two services on one broker: a shop, which is a plain
// Watermill Router, and a Leat worker that charges the shop's orders.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "shop" {
		if err := shop(context.Background(), "shop.db"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	worker.Main(builtin.All(), worker.Handle("charge", handlers.JSON(charge)))
}

// Order is what the shop publishes.
type Order struct {
	ID    string `json:"id"`
	Total int64  `json:"total"`
}

// Payment is what it gets back.
type Payment struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

func charge(ctx context.Context, o Order) error {
	return handlers.Emit(ctx, "payments.charged", Payment{Order: o.ID, Amount: o.Total})
}
