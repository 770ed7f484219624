package transporttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// hardy is a member, and a publisher, that go on through trouble as the engine
// does: what fails is tried again, or closed and opened anew.
type hardy struct {
	*stream
	m *member

	stop func()

	mu      sync.Mutex
	came    map[string]int
	sure    map[string]bool // acked while it was ours
	told    map[string]bool // acked as it was taken from us: it may come again, or not
	unsure  map[string]bool // may have been published twice
	again   []string        // came though it was surely acked
	changed chan struct{}
}

// hardy joins the stream's group, and works until it is closed.
func (s *stream) hardy() *hardy {
	s.Helper()
	s.hurt = true
	h := &hardy{
		stream: s, m: s.join(s.tr),
		came: map[string]int{}, sure: map[string]bool{}, told: map[string]bool{}, unsure: map[string]bool{}, changed: make(chan struct{}, 1),
	}
	h.m.gone = true // it is closed here
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.live(ctx)
	}()
	h.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	s.Cleanup(h.stop)
	return h
}

// step is how long one call may take that is tried again.
func (h *hardy) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*h.o.Quiet)
}

// pause is a while between tries; false if there is to be none.
func (h *hardy) pause(ctx context.Context) bool {
	timer := time.NewTimer(h.o.Quiet / 4)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h *hardy) live(ctx context.Context) {
	for c := h.m.Consumer; c != nil; c = h.open(ctx) {
		for h.work(ctx, c) {
		}
		closing, cancel := h.step(ctx)
		if err := c.Close(closing); err != nil {
			h.Logf("close consumer: %v", err)
		}
		cancel()
	}
}

// open tries until it succeeds; nil if it is no longer wanted.
func (h *hardy) open(ctx context.Context) transport.Consumer {
	for ctx.Err() == nil {
		opening, cancel := h.step(ctx)
		c, err := h.tr.OpenConsumer(opening, h.m.cfg)
		cancel()
		if err == nil {
			return c
		}
		h.Logf("open consumer: %v", err)
		h.pause(ctx)
	}
	return nil
}

// work is one Receive, and the ack of what it gave; false if the consumer is over.
func (h *hardy) work(ctx context.Context, c transport.Consumer) bool {
	ds, err := c.Receive(ctx, 20, maxBytes)
	if err != nil {
		return false
	}
	h.mu.Lock()
	for _, d := range ds {
		if h.came[d.ID]++; h.sure[d.ID] && !h.unsure[d.ID] {
			h.again = append(h.again, d.ID)
		}
	}
	h.mu.Unlock()
	for range 20 {
		settling, cancel := h.step(ctx)
		err = c.Settle(settling, settlements(transport.Ack, ds...))
		cancel()
		if err == nil || !h.pause(ctx) {
			break
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range ds {
		switch {
		case err != nil:
		case d.Assignment.Revoked():
			h.told[d.ID] = true
		default:
			h.sure[d.ID] = true
		}
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
	return err == nil
}

// insist publishes messages, each of a key of its own, until all are confirmed.
func (h *hardy) insist(prefix string, n int) []string {
	h.Helper()
	ids, err := h.try(prefix, n)
	require.NoError(h, err)
	return ids
}

// try is insist for any goroutine.
func (h *hardy) try(prefix string, n int) ([]string, error) {
	ids := make([]string, n)
	msgs := make([]*message.Message, n)
	for i := range msgs {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
		msgs[i] = msg(ids[i], ids[i])
	}
	within, done := h.withinTakeover()
	defer done()
	for {
		ctx, cancel := h.step(within)
		err := h.pub.Publish(ctx, h.topic, msgs...)
		cancel()
		if err == nil {
			return ids, nil
		}
		h.mu.Lock()
		for _, id := range ids {
			h.unsure[id] = true
		}
		h.mu.Unlock()
		if !h.pause(within) {
			return nil, fmt.Errorf("the broker does not take what is published: %w", err)
		}
	}
}

// during publishes while something is done to the broker.
func (h *hardy) during(prefix string, do func()) []string {
	h.Helper()
	var ids []string
	published := make(chan error, 1)
	go func() {
		for i := range 4 {
			some, err := h.try(fmt.Sprintf("%s-%d", prefix, i), 5)
			if err != nil {
				published <- err
				return
			}
			ids = append(ids, some...)
		}
		published <- nil
	}()
	do()
	require.NoError(h, <-published)
	return ids
}

// await waits until all of these have come and are acked.
func (h *hardy) await(want []string) {
	h.Helper()
	ctx, cancel := h.withinTakeover()
	defer cancel()
	for {
		h.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return h.sure[id] || h.told[id] })
		h.mu.Unlock()
		if len(missing) == 0 {
			return
		}
		select {
		case <-h.changed:
		case <-ctx.Done():
			require.Empty(h, missing[:min(len(missing), 20)], "%d of %d messages were not received and acked; the first of them", len(missing), len(want))
		}
	}
}

// finished checks that all of these have come, that nothing is left, and that
// nothing came again that was acked.
func (h *hardy) finished(want []string) {
	h.Helper()
	h.await(want)
	h.stop()
	next := h.join(h.connect())
	if h.caps.StableCoordinates { // else an ack may have been lost on its way
		for _, id := range next.leftovers() {
			require.True(h, h.told[id] && !h.sure[id], "%s was acked, and came again", id)
		}
		require.Empty(h, h.again, "came again after their ack")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(h, h.came, len(want), "messages came that were never published")
}
