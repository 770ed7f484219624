package middleware

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// interrupted tells whether a run was cut short, so that its error says
// nothing about the message. Of a message under the engine only the attempt's
// own context counts: a link outside may have put a shorter one on the message.
func interrupted(ctx context.Context, a *transport.Attempt, err error) bool {
	if transport.Interrupts(err) {
		return true
	}
	if a != nil {
		return a.Err() != nil
	}
	return ctx.Err() != nil
}

// snapshot is a message as it arrived. Under Watermill's Router one message
// goes through all attempts, and handlers change what they get.
type snapshot struct {
	uuid     string
	payload  []byte
	metadata message.Metadata
	ctx      context.Context //nolint:containedctx // restored with the rest
}

func take(msg *message.Message) snapshot {
	return snapshot{uuid: msg.UUID, payload: bytes.Clone(msg.Payload), metadata: maps.Clone(msg.Metadata), ctx: msg.Context()}
}

func (s *snapshot) restore(msg *message.Message) {
	msg.UUID, msg.Payload, msg.Metadata = s.uuid, bytes.Clone(s.payload), maps.Clone(s.metadata)
	msg.SetContext(s.ctx)
}

// sleep waits for d, or returns ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shortWait, before jitter, is for what somebody else will have done soon. In
// place it also keeps a message that is nacked from coming round at once.
const shortWait = 500 * time.Millisecond

// jittered is d to 2d, so that those who wait together do not come together.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(d) //nolint:gosec // spreads load, guards nothing
}

// tally is how DeadLetter learns from a Retry inside it, in place, how often
// a message was tried and since when it has failed.
type tally struct {
	attempts int
	first    time.Time
}

func (t *tally) failed(n int) {
	t.attempts = n
	if t.first.IsZero() {
		t.first = time.Now()
	}
}

type tallyKey struct{}

func tallyFrom(ctx context.Context) *tally {
	if t, ok := ctx.Value(tallyKey{}).(*tally); ok {
		return t
	}
	return new(tally)
}
