package middleware

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Defaults of DedupOptions.
const (
	DefaultDedupWindow = 24 * time.Hour
	DefaultDedupLease  = 10 * time.Second
)

// DedupOptions is how Dedup knows a message and where it remembers it.
type DedupOptions struct {
	// Key is what names a message: `metadata.NAME`, `payload.PATH` (gjson; a
	// string, number or boolean, compared as text), or `id`, the message's
	// id; default id. A message without its key is dead: permanent.
	Key string
	// Window is how long a done message is remembered; default 24h. Longer
	// than the longest redelivery, or a late one is handled twice.
	Window time.Duration
	// Lease is how long a claim stands that nobody renews, as after a crash;
	// default 10s. It is renewed while the handler runs.
	Lease time.Duration
	// Scope keeps equal keys apart; default: group and topic, and under
	// Watermill's Router the handler's name and topic. Consumers that are
	// given the same scope share their keys.
	Scope string
	// Store remembers; required.
	Store DedupStore
	// Publisher takes the messages a handler returns, under Watermill's Router
	// only: they must be confirmed before a message is done. A handler that
	// returns messages is refused there without one.
	Publisher message.Publisher
	// Log gets a line, every ten seconds at most, while the store fails;
	// default: none.
	Log *slog.Logger
}

// Dedup lets a message through that is not done yet, and that nobody else is
// at. It claims the key before the handler runs and marks it done only when the
// run has come to its end: handled or skipped, with all outputs confirmed. A
// run that came to anything else gives the claim back, so that a retry, a
// replayed dead letter and a redelivery after shutdown are not taken for
// duplicates of their own failure.
//
// What it returns under the engine: [transport.Already] for a message done
// before; a [*transport.Wait] with no attempt spent while somebody else is at
// it, or while the store fails (nothing is ever let through unseen); a
// permanent error for a message without its key, and for one whose id was done
// with another body, reason [transport.ReasonIDReused]. That last is asked only
// where the key is the message's own id, not one derived by Leat.
//
// Under Watermill's Router a duplicate is acked, and what has to wait is
// nacked after a short while.
//
// It makes at-least-once effects once as far as the mark goes: a crash between
// the handler's effect and the mark repeats the effect, and so does a process
// that stood still for longer than its lease.
func Dedup(o DedupOptions) (message.HandlerMiddleware, error) {
	key, err := parseDedupKey(o.Key)
	if err != nil {
		return nil, err
	}
	if o.Window == 0 {
		o.Window = DefaultDedupWindow
	}
	if o.Lease == 0 {
		o.Lease = DefaultDedupLease
	}
	switch {
	case o.Store == nil:
		return nil, errors.New("dedup: no store given")
	case o.Window < 0 || o.Lease < 0:
		return nil, fmt.Errorf("dedup: window %v and lease %v: want more than 0", o.Window, o.Lease)
	case o.Window < o.Lease:
		return nil, fmt.Errorf("dedup: window %v is shorter than the lease %v of a message being handled", o.Window, o.Lease)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &dedup{DedupOptions: o, key: key}
	d.keeper = keeper{store: o.Store, lease: o.Lease, failed: d.storeFailed, held: make(map[*claim]struct{})}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if a := transport.AttemptFrom(msg.Context()); a != nil {
				return d.attempt(a, next, msg)
			}
			return d.inPlace(next, msg)
		}
	}, nil
}

type dedup struct {
	DedupOptions

	key    dedupKey
	keeper keeper
	scope  atomic.Pointer[dedupScope]
	logged atomic.Int64 // Unix nanoseconds of the last line about the store
}

// attempt is the way under the engine.
func (d *dedup) attempt(a *transport.Attempt, next message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	c, err := d.claim(msg, a.Group(), a.Delivery().Topic)
	if err != nil {
		return nil, err
	}
	if !transport.OnSettle(a, c.settle) {
		return nil, errors.Join(transport.ErrClosed, c.release(context.WithoutCancel(a)))
	}
	return next(msg)
}

// claim takes the message's key, or says in its error what the message comes
// to without.
func (d *dedup) claim(msg *message.Message, group, topic string) (*claim, error) {
	key, err := d.key.of(msg)
	if err != nil {
		return nil, err
	}
	c := &claim{d: d}
	c.Scope, c.Key = d.scopeOf(group, topic), key
	if d.key.isID && msg.Metadata[transport.DerivedHeader] != "1" {
		sum := sha256.Sum256(msg.Payload)
		c.Body = DedupBody(sum[:])
	}
	ctx := msg.Context()
	state, err := d.Store.Claim(ctx, c.DedupKey, d.Lease)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		d.storeFailed(ctx, "claim", err)
		return nil, &transport.Wait{After: jittered(time.Second), Err: fmt.Errorf("dedup store: claim: %w", err)}
	case state.Status == DedupDone && c.Body != (DedupBody{}) && state.Body != (DedupBody{}) && c.Body != state.Body:
		return nil, &refusal{reason: transport.ReasonIDReused, text: "message id was handled before with another body"}
	case state.Status == DedupDone:
		return nil, transport.Already
	case state.Status == DedupHeld:
		return nil, &transport.Wait{After: max(min(state.Left, jittered(shortWait)), minWait), Err: errHeld}
	}
	c.Token = state.Token
	d.keeper.add(c)
	return c, nil
}

// minWait is how long a message waits at least that somebody else is at, even
// if the other's lease is just running out.
const minWait = 10 * time.Millisecond

// errHeld is why a message waits.
var errHeld = errors.New("message is being handled elsewhere")

// refusal is a message that dedup cannot take, and never will.
type refusal struct{ reason, text string }

func (r *refusal) Error() string      { return "dedup: " + r.text }
func (*refusal) Permanent() bool      { return true }
func (r *refusal) DeadReason() string { return r.reason }

// dedupScope keeps the scope made last: a consumer has one group, and mostly
// one topic.
type dedupScope struct{ group, topic, scope string }

func (d *dedup) scopeOf(group, topic string) string {
	if d.Scope != "" {
		return d.Scope
	}
	if s := d.scope.Load(); s != nil && s.group == group && s.topic == topic {
		return s.scope
	}
	// A separator that no name contains, and that every database takes.
	s := &dedupScope{group: group, topic: topic, scope: bounded(group+"\x1f"+topic, maxScope)}
	d.scope.Store(s)
	return s.scope
}

// storeFailed logs, but not for every message.
func (d *dedup) storeFailed(ctx context.Context, op string, err error) {
	now := time.Now().UnixNano()
	if last := d.logged.Load(); now-last < int64(10*time.Second) || !d.logged.CompareAndSwap(last, now) {
		return
	}
	d.Log.WarnContext(ctx, "dedup store fails, messages wait for it", "operation", op, "error", err)
}
