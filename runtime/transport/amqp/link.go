package amqp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// link is a connection that is opened when it is first used, and again after
// it was lost.
type link struct {
	t    *Transport
	role string

	turn   chan struct{} // held to change what follows; a channel, so that waiting ends with a context
	conn   *conn
	closed bool
}

func newLink(t *Transport, role string) *link {
	return &link{t: t, role: role, turn: make(chan struct{}, 1)}
}

func (l *link) lock(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("amqp broker: connecting: %w", context.Cause(ctx))
	}
}

// get gives the connection as it is now.
func (l *link) get(ctx context.Context) (*conn, error) {
	if err := l.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-l.turn }()
	switch {
	case l.closed:
		return nil, fmt.Errorf("amqp broker: %w", transport.ErrClosed)
	case l.conn != nil && l.conn.alive():
		return l.conn, nil
	}
	if err := l.t.pace.await(ctx, l.role); err != nil {
		return nil, err
	}
	c, err := l.t.dial(ctx, l.role)
	if err != nil {
		return nil, err
	}
	l.conn = c
	return c, nil
}

// longestAnswer bounds the wait for an answer of the broker: it may be alive
// and never answer, while a queue has no leader.
const longestAnswer = 20 * time.Second

func withinAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, longestAnswer, fmt.Errorf("the broker gives no answer within %s", longestAnswer))
}

// do runs fn on a channel of its own, which the broker closes on any error.
// If ctx ends first, fn is left behind, and ends with its answer or connection.
func (l *link) do(ctx context.Context, fn func(*conn, *amqp091.Channel) error) error {
	ctx, cancel := withinAnswer(ctx)
	defer cancel()
	c, err := l.get(ctx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		ch, err := c.Channel()
		if err == nil {
			err = fn(c, ch)
			_ = ch.Close() // the broker has closed it if fn has failed
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("amqp broker: %w", context.Cause(ctx))
	}
}

// close gives the connection up for good.
func (l *link) close(ctx context.Context) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	l.closed = true
	if l.conn == nil {
		return nil
	}
	err := l.conn.end(ctx)
	l.conn = nil
	return err
}

// pacer keeps tries to connect apart: no role tries more than once a second,
// and not in step with other processes.
type pacer struct {
	mu   sync.Mutex
	next map[string]time.Time
}

const tryEvery = time.Second

// await returns when the next try of a role may begin.
func (p *pacer) await(ctx context.Context, role string) error {
	p.mu.Lock()
	if p.next == nil {
		p.next = make(map[string]time.Time)
	}
	now := time.Now()
	at := p.next[role]
	if at.Before(now) {
		at = now
	}
	p.next[role] = at.Add(tryEvery + rand.N(tryEvery/2)) //nolint:gosec // spreads load
	p.mu.Unlock()
	wait := time.NewTimer(time.Until(at))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("amqp broker: before the next try to connect: %w", context.Cause(ctx))
	}
}

// rest forgets a role whose connection was closed in order: it may come again at once.
func (p *pacer) rest(role string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, role)
}
