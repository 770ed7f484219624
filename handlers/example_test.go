package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

// Order is what the examples' messages hold.
type Order struct {
	ID    int `json:"id"`
	Total int `json:"total"`
}

// Receipt is what the examples send.
type Receipt struct {
	Order int `json:"order"`
}

var errBusy = errors.New("bank is busy")

// deliver stands for the engine: it runs a handler over one message.
func deliver(h message.HandlerFunc, body string) {
	d := &transport.Delivery{
		ID: "1", Topic: "orders.placed", Payload: []byte(body),
		Assignment: transport.NewAssignment(context.Background(), "orders.placed", 0),
	}
	defer d.Assignment.Revoke()
	a := transport.NewAttempt(d, "charge", "payments.charge", 1, time.Time{})
	returned, err := h(a.Message())
	outputs, _, _ := a.End()
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for _, m := range returned {
		fmt.Println("to publish_to:", string(m.Payload))
	}
	for _, o := range outputs {
		fmt.Printf("to %s: %s\n", o.Topic, o.Message.Payload)
	}
}

func ExampleJSON() {
	charge := func(_ context.Context, o Order) error {
		if o.Total <= 0 {
			return handlers.Permanent(errors.New("total must be positive"))
		}
		fmt.Println("charged", o.Total)
		return nil
	}
	deliver(handlers.JSON(charge), `{"id": 1, "total": 5}`)
	deliver(handlers.JSON(charge), `{"id": 2, "total": 0}`)
	deliver(handlers.JSON(charge), `{"id": 3, "total": "five"}`)
	// Output:
	// charged 5
	// error: total must be positive
	// error: body of 26 bytes: field "total": string at offset 25 does not fit int
}

func ExampleJSONOut() {
	charge := func(_ context.Context, o Order) (*Receipt, error) {
		if o.Total == 0 {
			return nil, nil // nothing to send
		}
		return &Receipt{Order: o.ID}, nil
	}
	deliver(handlers.JSONOut(charge), `{"id": 1, "total": 5}`)
	deliver(handlers.JSONOut(charge), `{"id": 2}`)
	// Output:
	// to publish_to: {"order":1}
}

func ExampleEmit() {
	charge := func(ctx context.Context, o Order) error {
		return handlers.Emit(ctx, "payments.charged", Receipt{Order: o.ID}, handlers.Key(fmt.Sprint(o.ID)))
	}
	deliver(handlers.JSON(charge), `{"id": 1}`)
	// Output:
	// to payments.charged: {"order":1}
}

func ExamplePermanent() {
	validate := func(o Order) error {
		if o.Total < 0 {
			return errors.New("total is negative")
		}
		return nil
	}
	check := func(_ context.Context, o Order) error { return handlers.Permanent(validate(o)) }
	deliver(handlers.JSON(check), `{"total": -1}`)
	deliver(handlers.JSON(check), `{"total": 1}`)
	// Output:
	// error: total is negative
}

func ExampleRetryAfter() {
	charge := func(context.Context, Order) error { return handlers.RetryAfter(errBusy, time.Minute) }
	deliver(handlers.JSON(charge), `{"id": 1}`)
	// Output:
	// error: bank is busy
}

func ExampleSkip() {
	charge := func(context.Context, Order) error { return handlers.Skip("a test order") }
	deliver(handlers.JSON(charge), `{"id": 1}`)
	// Output:
	// error: skipped: a test order
}

func ExampleDeliveryFrom() {
	audit := func(msg *message.Message) ([]*message.Message, error) {
		d, _ := handlers.DeliveryFrom(msg.Context())
		fmt.Println(d.Topic, d.Consumer, d.Attempt)
		return nil, nil
	}
	deliver(audit, "anything")
	// Output:
	// orders.placed charge 1
}

func ExampleForward() {
	deliver(handlers.Forward(handlers.ForwardOptions{Topic: "audit"}), "as it is")
	// Output:
	// to audit: as it is
}
