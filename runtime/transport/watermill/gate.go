package watermill

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// gate keeps a Subscriber from being closed while an ack is on its way to it:
// many look at a message's ack and at their own end in one select, where either
// may win. They cancel a message's context once they have its answer.
type gate struct {
	mu    sync.Mutex
	acked []context.Context
	prune int
}

const (
	gateLimit = time.Second // for a Pub/Sub that never cancels
	gatePrune = 64
)

// pass notes an ack that was given.
func (g *gate) pass(m *message.Message) {
	ctx := m.Context()
	if ctx.Done() == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.acked) >= max(g.prune, gatePrune) {
		g.acked = slices.DeleteFunc(g.acked, func(ctx context.Context) bool { return ctx.Err() != nil })
		g.prune = 2 * len(g.acked)
	}
	g.acked = append(g.acked, ctx)
}

// wait returns when all of them have been taken, or after a while.
func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	acked := g.acked
	g.acked = nil
	g.mu.Unlock()
	limit := time.NewTimer(gateLimit)
	defer limit.Stop()
	for _, a := range acked {
		select {
		case <-a.Done():
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
