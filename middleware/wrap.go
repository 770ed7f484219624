package middleware

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// runHeader marks a message on its way through the wrap links.
const runHeader = "leat_run"

// runs gives a message back to its attempt that a wrap link has made anew:
// what decrypts or unpacks often does, and Watermill's Message.Copy leaves the
// context behind. Metadata is what links do copy.
type runs struct {
	last atomic.Int64
	open sync.Map // context.Context by number
}

func newRuns() *runs { return &runs{} }

// begin is outside the wrap links.
func (r *runs) begin(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if transport.AttemptFrom(msg.Context()) == nil {
			return next(msg)
		}
		number := strconv.FormatInt(r.last.Add(1), 10)
		r.open.Store(number, msg.Context())
		defer r.open.Delete(number)
		msg.Metadata[runHeader] = number
		return next(msg)
	}
}

// errLostRun is an ordinary failure: it is the link that is wrong, not the message.
var errLostRun = errors.New("wrap: a middleware hands on a message with neither the context nor the metadata of the one it got: use Message.CopyWithContext")

// resume is inside them.
func (r *runs) resume(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		number := msg.Metadata[runHeader]
		delete(msg.Metadata, runHeader)
		if transport.AttemptFrom(msg.Context()) != nil {
			return next(msg)
		}
		if ctx, ok := r.open.Load(number); ok {
			msg.SetContext(ctx.(context.Context)) //nolint:forcetypeassert // only those are in it
			return next(msg)
		}
		if number == "" && r.idle() {
			return next(msg) // under Watermill's own Router
		}
		return nil, errLostRun
	}
}

// idle tells whether no attempt is on its way.
func (r *runs) idle() bool {
	idle := true
	r.open.Range(func(any, any) bool {
		idle = false
		return false
	})
	return idle
}
