package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// subscription is one consumer of the engine, whose handler hands a message
// out and returns when it is answered.
type subscription struct {
	router  *runtime.Router
	out     chan *message.Message
	handing sync.WaitGroup // handlers, which may send to out

	values context.Context //nolint:containedctx // parent of all messages; it never ends
	ctx    context.Context //nolint:containedctx // ends the subscription
	stop   context.CancelFunc

	done chan struct{} // closed when out is
	err  error         // why it ended, if nobody asked for it
	log  *slog.Logger
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) (*subscription, error) {
	b := s.Backoff
	b.Attempts = transport.Unlimited
	retry, err := transport.NewRetryPolicy(b)
	if err != nil {
		return nil, err
	}
	sub := &subscription{
		out: make(chan *message.Message), done: make(chan struct{}),
		values: context.WithoutCancel(ctx), log: s.Log,
	}
	if sub.log == nil {
		sub.log = slog.New(slog.DiscardHandler)
	}
	sub.ctx, sub.stop = context.WithCancel(ctx)
	sub.router = runtime.NewRouter(runtime.Options{
		Instance:     transport.Instance{ID: uuid.NewString()},
		Topology:     s.Topology,
		DrainTimeout: orDefault(s.Drain, defaultDrain),
		Log:          sub.log,
	})
	concurrency := s.Concurrency
	if concurrency <= 0 {
		concurrency = defaultConcurrency
	}
	err = sub.router.Consume(s.group, s.transport, topic, sub.hand, transport.Policy{
		Group: s.group, Start: s.Start, Concurrency: concurrency, Order: s.Order,
		Retry: retry, DeadLetter: transport.DeadLetter{Mode: transport.DeadBlock},
	})
	if err != nil {
		sub.stop()
		return nil, err
	}
	return sub, nil
}

func (s *subscription) run() {
	defer close(s.done)
	err := s.router.Run(s.ctx)
	s.stop()
	s.handing.Wait()
	close(s.out)
	switch {
	case errors.Is(err, runtime.ErrDrainTimeout): // messages that nobody answered stay with the broker
	case err != nil:
		s.err = err
		s.log.ErrorContext(s.values, "subscription ended", "error", err)
	}
}

// errNacked has the engine wait, longer each time.
var errNacked = errors.New("nacked")

// errUnheard is for a message that nobody took before the subscription ended.
func errUnheard() error { return &transport.Wait{Err: errors.New("subscription is ending")} }

// hand gives one message out. The message is another than the engine's, with a
// context that knows nothing of the engine.
func (s *subscription) hand(m *message.Message) ([]*message.Message, error) {
	s.handing.Add(1)
	defer s.handing.Done()
	attempt := m.Context()
	ctx, cancel := context.WithCancelCause(s.values)
	defer cancel(nil)
	defer context.AfterFunc(attempt, func() { cancel(context.Cause(attempt)) })()

	out := message.NewMessage(m.UUID, m.Payload)
	out.Metadata = m.Metadata
	out.SetContext(ctx)
	select {
	case s.out <- out:
	case <-s.ctx.Done():
		return nil, errUnheard()
	case <-attempt.Done():
		return nil, context.Cause(attempt)
	}
	select {
	case <-out.Acked():
		return nil, nil
	case <-out.Nacked():
		return nil, fmt.Errorf("message %q: %w", m.UUID, errNacked)
	case <-attempt.Done():
		cancel(context.Cause(attempt)) // the reader is told why, whoever comes first
		return nil, context.Cause(attempt)
	}
}
