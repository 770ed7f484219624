package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/handlers"
)

// Bank moves money. A second Charge with the same key changes nothing.
type Bank interface {
	Charge(ctx context.Context, key string, cents int64) error
}

// ErrClosed is what a bank says on Sundays.
var ErrClosed = errors.New("bank is closed")

// Order is what comes in.
type Order struct {
	ID    string `json:"id"`
	Total int64  `json:"total"`
}

// Charged is what goes out.
type Charged struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

func charge(b Bank) message.HandlerFunc {
	return handlers.JSON(func(ctx context.Context, o Order) error {
		if o.Total <= 0 {
			return handlers.Permanent(errors.New("total must be positive"))
		}
		switch err := b.Charge(ctx, o.ID, o.Total); {
		case errors.Is(err, ErrClosed):
			return handlers.RetryAfter(err, 12*time.Hour)
		case err != nil:
			return err
		}
		return handlers.Emit(ctx, "payments.charged", Charged{Order: o.ID, Amount: o.Total})
	})
}
