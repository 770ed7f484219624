package amqp

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// line is a channel that publishes, with its confirmations.
type line struct {
	conn      *conn
	ch        *amqp091.Channel
	mandatory bool
	window    chan struct{} // one for each that waits for its confirmation
	ended     chan struct{} // closed after the last of them was told
	users     atomic.Int32  // publishes that have been given it

	confirms atomic.Int64 // that have come

	sending sync.Mutex // so that messages leave in the order of their tags

	mu      sync.Mutex
	waiting []*sent // in the order of their tags
	err     error   // why nothing more can be published
	late    fate    // then, of what was to be sent
}

// publishWindow is how many messages a channel has under way.
const publishWindow = 1024

// item is one message to be published.
type item struct {
	index         int // in the call
	exchange, key string
	pub           amqp091.Publishing
}

// sent is one that waits for its confirmation.
type sent struct {
	*item

	call     *call
	size     int
	body     uint64 // hash: the body itself may be changed once its call has ended
	returned string // why no queue has taken it
}

var bodySeed = maphash.MakeSeed()

// call is one call of publish.
type call struct {
	left    int
	failed  []transport.PublishFailure
	suspect []item
	done    chan struct{} // closed when nothing is left
}

// openLine opens a channel in confirm mode.
func openLine(ctx context.Context, c *conn, mandatory bool) (*line, error) {
	l := &line{conn: c, mandatory: mandatory, window: make(chan struct{}, publishWindow), ended: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- l.open() }()
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return l, nil
	case <-ctx.Done():
		go func() { // it ends with its answer, or with the connection
			if <-done == nil {
				l.close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (l *line) open() error {
	ch, err := l.conn.Channel()
	if err != nil {
		return explain(err)
	}
	l.ch = ch
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	// Both without a buffer: the library hands over one at a time, so a return
	// is seen before the confirmation of its message.
	returned := ch.NotifyReturn(make(chan amqp091.Return))
	confirmed := ch.NotifyPublish(make(chan amqp091.Confirmation))
	if err := ch.Confirm(false); err != nil {
		return explain(err)
	}
	go l.listen(closed, returned, confirmed)
	return nil
}

// publish sends items in their order and waits until each is confirmed or has
// failed. After an error nothing is known of any.
func (l *line) publish(ctx context.Context, items []item) ([]transport.PublishFailure, error) {
	if len(items) == 0 {
		return nil, nil
	}
	c := &call{left: len(items), done: make(chan struct{})}
	if err := l.sendAll(ctx, items, c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		more, err := l.apart(ctx, c.suspect)
		return append(c.failed, more...), err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *line) sendAll(ctx context.Context, items []item, c *call) error {
	if len(items) > 1 {
		l.conn.raw.cork()
		defer l.conn.raw.uncork()
	}
	for i := range items {
		if err := l.room(ctx, len(items) > 1); err != nil {
			return err
		}
		body := items[i].pub.Body
		l.send(&sent{item: &items[i], call: c, size: len(body), body: maphash.Bytes(bodySeed, body)})
	}
	return nil
}

// room waits until one more may be under way, or the channel has ended. What is
// held back leaves before.
func (l *line) room(ctx context.Context, corked bool) error {
	select {
	case l.window <- struct{}{}:
		return nil
	default:
	}
	if corked {
		l.conn.raw.uncork()
		defer l.conn.raw.cork()
	}
	select {
	case l.window <- struct{}{}:
		return nil
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *line) send(s *sent) {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.mu.Lock()
	if l.err != nil {
		l.tell(s, l.err, l.late)
		l.mu.Unlock()
		return
	}
	l.waiting = append(l.waiting, s)
	l.mu.Unlock()
	_, err := l.ch.PublishWithDeferredConfirm(s.exchange, s.key, l.mandatory, false, s.pub)
	if err != nil && !errors.Is(err, amqp091.ErrClosed) { // of what is closed listen tells
		l.end(fmt.Errorf("send: %w", explain(err)), nil) // its tag is not used up, so tags would no longer be ours
	}
}

// listen hears returns and confirmations, in the order the broker sends them.
func (l *line) listen(closed <-chan *amqp091.Error, returned <-chan amqp091.Return, confirmed <-chan amqp091.Confirmation) {
	defer close(l.ended)
	for {
		select {
		case r, ok := <-returned:
			if !ok {
				returned = nil
				continue
			}
			l.mark(&r)
		case c, ok := <-confirmed:
			if ok {
				l.confirm(c.Ack)
				continue
			}
			err := <-closed
			if err == nil {
				l.end(transport.ErrClosed, nil)
			} else {
				l.end(explain(err), err)
			}
			return
		}
	}
}

// mark notes the return of a message: the first that is equal to it.
func (l *line) mark(r *amqp091.Return) {
	body := maphash.Bytes(bodySeed, r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.waiting {
		if s.returned == "" && s.exchange == r.Exchange && s.key == r.RoutingKey && s.pub.MessageId == r.MessageId && s.size == len(r.Body) && s.body == body {
			s.returned = trimReason(r.ReplyText)
			return
		}
	}
}

// confirm tells of the oldest that waits: confirmations come in the order of tags.
func (l *line) confirm(ack bool) {
	l.confirms.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return // it came too late
	}
	s := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	switch {
	case s.returned != "":
		l.tell(s, unrouted(s.exchange, s.key, s.returned), failed)
	case !ack:
		l.tell(s, errors.New("a queue refuses it: it may be full"), failed)
	default:
		l.tell(s, nil, failed)
	}
}

// tell ends the wait for one message: it is confirmed if err is nil. mu is held.
func (l *line) tell(s *sent, err error, f fate) {
	select {
	case <-l.window:
	default: // the channel has ended
	}
	c := s.call
	switch {
	case err == nil:
	case f == suspect:
		c.suspect = append(c.suspect, *s.item)
	default:
		c.failed = append(c.failed, transport.PublishFailure{Index: s.index, Err: err, Permanent: f == guilty})
	}
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// end tells those that wait why the channel has ended; closed is the broker's
// reason, if it has ended it.
func (l *line) end(err error, closed *amqp091.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		if condemns(closed) {
			l.late = suspect
		}
	}
	for _, s := range l.waiting {
		l.tell(s, l.err, blame(closed, s, len(l.waiting)))
	}
	l.waiting = nil
}

func (l *line) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *line) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

// close closes the channel.
func (l *line) close() {
	_ = l.ch.Close() // it may be closed
	<-l.ended
}

// drain waits for the confirmations that are due, then closes the channel.
func (l *line) drain(ctx context.Context) error {
	for range publishWindow {
		select {
		case l.window <- struct{}{}:
		case <-l.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("confirmations are due: %w", context.Cause(ctx))
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		l.close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
