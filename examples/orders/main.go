// Command orders charges orders and writes receipts: two handlers, the first
// of which emits to the other's topic.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() {
	worker.Main(builtin.All(),
		worker.Handle("charge", handlers.JSON(charge)),
		worker.Handle("receipt", handlers.JSON(receipt)),
	)
}

// OrderPlaced is what comes in.
type OrderPlaced struct {
	ID    string `json:"id"`
	Total int64  `json:"total"`
}

// PaymentCharged is what charge emits.
type PaymentCharged struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

func charge(ctx context.Context, o OrderPlaced) error {
	if o.Total <= 0 {
		return handlers.Permanent(errors.New("total must be positive")) // to the dead letter, at once
	}
	fmt.Printf("order %s: charged %d\n", o.ID, o.Total)
	// Sent if charge returns nil, and before the order is acked.
	return handlers.Emit(ctx, "payments.charged", PaymentCharged{Order: o.ID, Amount: o.Total})
}

func receipt(_ context.Context, p PaymentCharged) error {
	fmt.Printf("order %s: receipt over %d\n", p.Order, p.Amount)
	return nil
}
