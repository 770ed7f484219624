package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

// demo makes up orders, and has the handlers that charge them.
type demo struct {
	seed   uint64
	count  int // 0: until stopped
	worker *Worker
	began  time.Time

	published, retried atomic.Int64
	once               sync.Once
	first              chan struct{} // closed when an order has been charged

	mu     sync.Mutex
	failed map[string]bool // orders whose first attempt has failed, until they succeed
}

type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Flaky    bool   `json:"flaky,omitempty"` // the bank is busy at first
}

type charged struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
}

// fate is what will happen to one order. It follows from seed and number
// alone, so that the numbers at the end do not depend on time.
type fate struct {
	order

	garbled, negative bool // poison: does not decode, cannot be charged
	copied            int  // so many orders later a copy follows; 0: none
}

func (d *demo) fateOf(n int) fate {
	r := rand.New(rand.NewPCG(d.seed, uint64(n))) //nolint:gosec // makes up orders
	f := fate{order: order{
		ID: fmt.Sprintf("order-%06d", n), Customer: fmt.Sprintf("customer-%02d", r.IntN(50)), Cents: 100 + r.Int64N(20_000),
	}}
	switch dice := r.IntN(100); {
	case dice < 1:
		f.garbled = true
		return f
	case dice < 3:
		f.negative, f.Cents = true, -f.Cents
		return f
	case dice < 9:
		f.Flaky = true
	}
	if r.IntN(100) < 5 {
		f.copied = 1 + r.IntN(20)
	}
	return f
}

// message is an order as it is published: with the customer as its key, so
// that orders of one customer keep their order, and a new id each time, as
// from a shop that sends again what it believes lost.
func (f fate) message() (*message.Message, error) {
	payload, err := json.Marshal(f.order)
	if f.garbled {
		payload, err = json.Marshal(map[string]string{"id": f.ID, "customer": f.Customer, "cents": "many"})
	}
	return &message.Message{
		UUID: uuid.NewString(), Payload: payload, Metadata: message.Metadata{transport.KeyHeader: f.Customer},
	}, err
}

// charge is the handler of orders.
func (d *demo) charge(ctx context.Context, o order) error {
	if o.Cents <= 0 {
		return handlers.Permanent(errors.New("amount must be positive"))
	}
	select { // the bank takes its time
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if o.Flaky && d.failsFirst(o.ID) {
		return errors.New("bank is busy")
	}
	d.once.Do(func() { close(d.first) })
	return handlers.Emit(ctx, "payments.charged", charged{Order: o.ID, Cents: o.Cents})
}

// failsFirst is true once for each order.
func (d *demo) failsFirst(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed[id] {
		delete(d.failed, id)
		return false
	}
	d.failed[id] = true
	d.retried.Add(1)
	return true
}

// receipt is the handler of what charge emits.
func (*demo) receipt(context.Context, charged) error { return nil }

// How orders come in: a few at a time where somebody watches, else fast.
const (
	demoInterval = 40 * time.Millisecond
	demoBatch    = 64
)

// publish makes up orders until ctx ends or there are enough.
func (d *demo) publish(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return nil
	}
	producer, err := d.worker.Transport("").OpenProducer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close(context.WithoutCancel(ctx))) }()
	tick := time.NewTicker(demoInterval)
	defer tick.Stop()
	copies := map[int][]fate{} // by the number of the order they follow
	for n := 1; (d.count == 0 || n <= d.count) && ctx.Err() == nil; {
		size := 1
		if d.count > 0 {
			size = min(demoBatch, d.count-n+1)
		}
		batch := make([]*message.Message, 0, 2*size)
		for ; size > 0; size-- {
			f := d.fateOf(n)
			if f.copied > 0 {
				at := n + f.copied
				if d.count > 0 {
					at = min(at, d.count)
				}
				copies[at] = append(copies[at], f)
			}
			for _, f := range append([]fate{f}, copies[n]...) {
				m, err := f.message()
				if err != nil {
					return fmt.Errorf("order %s: %w", f.ID, err)
				}
				batch = append(batch, m)
			}
			delete(copies, n)
			n++
		}
		if err := producer.Publish(context.WithoutCancel(ctx), "orders.placed", batch...); err != nil {
			return fmt.Errorf("publish orders: %w", err)
		}
		d.published.Add(int64(len(batch)))
		if d.count > 0 {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
