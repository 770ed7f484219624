package handlers

import (
	"context"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Delivery is what is known of the message being handled, besides itself.
type Delivery struct {
	ID    string // empty where the message has none
	Topic string
	// Partition and Offset are the broker's, or 0 and a delivery tag.
	Partition int32
	Offset    int64
	Key       string // empty where there is none

	Attempt      int       // counts from 1, this one included
	FirstFailure time.Time // zero in a first attempt, or if not known
	Enqueued     time.Time // when it was published; zero if not known

	Consumer string // the name in the worker's file
	Group    string
}

// DeliveryFrom finds the delivery in a handler's context; false in any other
// context, as under Watermill's own Router.
func DeliveryFrom(ctx context.Context) (Delivery, bool) {
	a := transport.AttemptFrom(ctx)
	if a == nil {
		return Delivery{}, false
	}
	d := a.Delivery()
	return Delivery{
		ID: d.ID, Topic: d.Topic, Partition: d.Partition, Offset: d.Offset, Key: d.Key,
		Attempt: a.Number(), FirstFailure: a.FirstFailure(), Enqueued: d.Enqueued,
		Consumer: a.Consumer(), Group: a.Group(),
	}, true
}
