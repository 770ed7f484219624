package transport

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Delivery is one hand-over of a message by a broker, as it was received.
// Nobody changes one after Receive has returned it: attempts work on copies.
type Delivery struct {
	// ID is the message's id: Watermill's UUID header, else the broker's or
	// CloudEvents' id, else the coordinates where those are stable. Empty
	// where the message has none.
	ID string
	// Payload keeps nil and empty apart.
	Payload []byte
	// Headers holds all of them, [KeyHeader] among them where there is a key.
	Headers Headers

	Topic     string
	Partition int32
	// Offset names the delivery within topic and partition: a log offset, a
	// row id or a delivery tag.
	Offset int64
	// Key is the message key; empty means that there is none.
	Key string

	// Attempts counts the failed attempts before this delivery, as far as
	// the broker remembers them.
	Attempts     int
	FirstFailure time.Time // zero if Attempts is 0 or the time is not known
	LastError    string    // class of the last failure

	Enqueued time.Time // when it was published; zero if not known
	// NotBefore is when a delivery becomes due that is loaded before, as the
	// head of its order; zero or past means now.
	NotBefore   time.Time
	Redelivered bool
	// Session counts the connections of a consumer, from 1, where coordinates
	// are not stable.
	Session uint64

	// Assignment is the spell of ownership this delivery belongs to. Never nil.
	Assignment *Assignment
	// Tag is the transport's own note about the delivery.
	Tag any
}

// Size is what the delivery counts for in a credit of bytes.
func (d *Delivery) Size() int64 {
	n := len(d.Payload) + len(d.ID)
	for _, h := range d.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return int64(n)
}

// Headers are a message's metadata as it was received: pairs in the broker's
// order, where a name may come more than once. Reading them costs less than a
// map, of which each attempt makes one.
type Headers []Header

// Header is one pair of [Headers].
type Header struct{ Name, Value string }

// Get gives the last value of a name; empty where there is none.
func (h Headers) Get(name string) string {
	for _, p := range slices.Backward(h) {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// Map copies the headers into metadata; of a name that comes more than once
// it has the last value.
func (h Headers) Map() map[string]string {
	m := make(map[string]string, len(h))
	for _, p := range h {
		m[p.Name] = p.Value
	}
	return m
}

// HeadersOf makes headers of metadata, sorted by name.
func HeadersOf(metadata map[string]string) Headers {
	if len(metadata) == 0 {
		return nil
	}
	h := make(Headers, 0, len(metadata))
	for k, v := range metadata {
		h = append(h, Header{k, v})
	}
	slices.SortFunc(h, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return h
}

// Coordinates renders "topic/partition/offset".
func (d *Delivery) Coordinates() string {
	return d.Topic + "/" + strconv.Itoa(int(d.Partition)) + "/" + strconv.FormatInt(d.Offset, 10)
}

// Assignment is one spell of owning one partition, or a queue's worth of one
// connection. A transport makes a new one each time ownership begins and
// shares it between the deliveries of that spell.
//
// It ends in two steps. [Assignment.Leave] asks the engine to start nothing
// more of it and to release what has not started; running handlers go on and
// are settled. [Assignment.Revoke] cancels their contexts, and nothing is
// settled any more. A transport that loses a partition at once calls Revoke
// alone. It hands nothing of the partition out again before Revoke has
// returned: by then the engine knows which of its messages are still running.
type Assignment struct {
	Topic     string
	Partition int32

	ctx    context.Context //nolint:containedctx // it is the context of the spell
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	leaving  bool
	revoked  bool
	onLeave  []func()
	onRevoke []func()
}

// NewAssignment begins a spell. Its context derives from base, which is
// [ConsumerConfig.Base].
func NewAssignment(base context.Context, topic string, partition int32) *Assignment {
	ctx, cancel := context.WithCancelCause(base)
	return &Assignment{Topic: topic, Partition: partition, ctx: ctx, cancel: cancel}
}

// Context is cancelled with cause [ErrRevoked] when the spell is over, and
// with [ErrShutdown] when the worker cannot wait any longer.
func (a *Assignment) Context() context.Context { return a.ctx }

// Leave begins the end of the spell.
func (a *Assignment) Leave() {
	a.mu.Lock()
	fns := a.onLeave
	a.leaving, a.onLeave = true, nil
	a.mu.Unlock()
	call(fns)
}

// Revoke ends the spell. Settlements of its deliveries change nothing from
// here on.
func (a *Assignment) Revoke() {
	a.mu.Lock()
	left, revoked := a.onLeave, a.onRevoke
	a.leaving, a.revoked, a.onLeave, a.onRevoke = true, true, nil, nil
	a.mu.Unlock()
	a.cancel(ErrRevoked)
	call(left)
	call(revoked)
}

func call(fns []func()) {
	for _, fn := range fns {
		fn()
	}
}

// Leaving tells whether Leave or Revoke was called.
func (a *Assignment) Leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving
}

// Revoked tells whether Revoke was called.
func (a *Assignment) Revoked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revoked
}

// OnLeave calls fn when the spell begins to end, at once if it has already.
// fn must not block.
func (a *Assignment) OnLeave(fn func()) { a.on(&a.onLeave, &a.leaving, fn) }

// OnRevoke calls fn when the spell is over, at once if it is already. fn must
// not block; Revoke returns after it.
func (a *Assignment) OnRevoke(fn func()) { a.on(&a.onRevoke, &a.revoked, fn) }

func (a *Assignment) on(list *[]func(), happened *bool, fn func()) {
	a.mu.Lock()
	if !*happened {
		*list = append(*list, fn)
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	fn()
}
