package amqp

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// A delayed copy has one header, a table, which holds the message's own
// headers and what is to be known of its failures. So nothing that the broker
// adds on the way mixes with them. The form is part of the format.
const (
	delayHeader   = "leat_delay"
	delayDue      = "due"      // milliseconds since 1970
	delayAttempts = "attempts" // failed ones
	delayFirst    = "first"    // failure, microseconds since 1970; 0 if not known
	delayError    = "error"    // class of the last
	delayHeaders  = "headers"
)

// A delayed message waits in queues that hold everything for one time, and
// then dead-letter it to the queue it came from: the longest that is not too
// long, and again another for what is left. What is left of less than the
// shortest is waited for by the engine.
const (
	shortestDelay = 250 * time.Millisecond
	delaySteps    = 12 // each four times the one before: up to 12 days
)

// stepFor is the time of the queue for a wait; 0 for one that is too short.
func stepFor(wait time.Duration) time.Duration {
	if wait < shortestDelay {
		return 0
	}
	step := shortestDelay
	for range delaySteps - 1 {
		if 4*step > wait {
			break
		}
		step *= 4
	}
	return step
}

// delayQueue names the queue that holds what is from queue for a time.
func delayQueue(queue string, step time.Duration) string {
	return bounded(queue, maxQueue) + "--delay-" + strconv.FormatInt(step.Milliseconds(), 10)
}

// delayArguments of a delay queue: it confirms to itself that the target has a
// message before it forgets it.
func delayArguments(queue string, step time.Duration) amqp091.Table {
	return amqp091.Table{
		"x-queue-type":              quorum,
		"x-message-ttl":             step.Milliseconds(),
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": queue,
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
	}
}

// delayer moves deliveries of one consumer to delay queues. A delivery stays
// unacked until its copy is confirmed; one whose time comes before that is
// handed out from here.
type delayer struct {
	c        *consumer
	producer *producer
	moving   sync.WaitGroup
	ending   context.Context //nolint:containedctx // no more tries
	end      context.CancelFunc
	over     context.Context //nolint:containedctx // no more waits
	stop     context.CancelFunc
}

func (l *delayer) init(c *consumer) {
	l.c, l.producer = c, newProducer(c.t)
	l.ending, l.end = context.WithCancel(context.WithoutCancel(c.cfg.Base))
	l.over, l.stop = context.WithCancel(context.WithoutCancel(c.cfg.Base))
}

// add begins to move h, and tells when the first try is over. s.mu is held, so
// that close, before which all of them leave, sees all. Who leaves gives h back.
func (l *delayer) add(h *handed, st transport.Settlement) (tried <-chan struct{}) {
	due := time.Now().Add(st.After)
	first := make(chan struct{})
	if h.s.leaving {
		close(first)
		return first
	}
	l.moving.Go(func() { l.move(h, st, due, first) })
	return first
}

// move tries until a copy is confirmed, or due, or h comes again by itself.
func (l *delayer) move(h *handed, st transport.Settlement, due time.Time, first chan<- struct{}) {
	s := h.s
	for tries := 0; ; tries++ {
		if s.lost() {
			if tries == 0 {
				close(first)
			}
			return
		}
		err := l.publish(h, st, due)
		if err == nil {
			s.mu.Lock()
			s.ack(h)
			s.mu.Unlock()
			err := s.flush(true)
			if tries == 0 {
				close(first)
			}
			if err != nil {
				l.c.fail(err)
			}
			return
		}
		if tries == 0 {
			close(first)
			l.c.cfg.Log.WarnContext(l.over, "delay not taken by the broker yet", "queue", s.queue, "error", err)
		}
		wait := min(tryEvery<<min(tries, 3), time.Until(due))
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-l.ending.Done():
			again.Stop()
			return
		}
		if !time.Now().Before(due) {
			break
		}
	}
	again := *st.Delivery
	again.Attempts, again.FirstFailure, again.LastError, again.NotBefore = st.Attempts, st.FirstFailure, st.LastError, time.Time{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.putBack(h, &again)
	}
}

// publish confirms one copy.
func (l *delayer) publish(h *handed, st transport.Settlement, due time.Time) error {
	d := st.Delivery
	c, err := l.c.t.outgoing.get(l.over)
	if err != nil {
		return err
	}
	p, err := l.c.t.encode(&message.Message{UUID: d.ID, Payload: d.Payload, Metadata: d.Headers.Map()}, c.Config.FrameSize)
	if err != nil {
		return err
	}
	state := amqp091.Table{
		delayDue:      due.UnixMilli() + 1, // never early
		delayAttempts: int64(st.Attempts), delayError: st.LastError, delayHeaders: p.Headers,
	}
	if !st.FirstFailure.IsZero() {
		state[delayFirst] = st.FirstFailure.UnixMicro()
	}
	p.Headers, p.Timestamp = amqp091.Table{delayHeader: state}, d.Enqueued
	queue := h.s.queue
	step := stepFor(time.Until(due))
	if step == 0 {
		return l.producer.toQueue(l.over, queue, p)
	}
	if err := l.c.t.ensureDelay(l.over, queue, step); err != nil {
		return err
	}
	if err := l.producer.toQueue(l.over, delayQueue(queue, step), p); err != nil {
		l.c.t.forgetDelay(queue, step) // it may have been deleted
		return err
	}
	return nil
}

// close waits for what is moving, for as long as ctx lives, and gives up the rest.
func (l *delayer) close(ctx context.Context) {
	l.end()
	defer context.AfterFunc(ctx, l.stop)()
	l.moving.Wait()
	l.stop()
	_ = l.producer.Close(ctx) // nothing is under way
}

// ensureDelay makes sure of a delay queue.
func (t *Transport) ensureDelay(ctx context.Context, queue string, step time.Duration) error {
	t.mu.Lock()
	_, known := t.delays[queue][step]
	t.mu.Unlock()
	if known {
		return nil
	}
	name := delayQueue(queue, step)
	if err := t.control.do(ctx, func(_ *conn, ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, delayArguments(queue, step))
		return err
	}); err != nil {
		return about("delay queue", name, err)
	}
	t.knowDelay(queue, step)
	return nil
}

func (t *Transport) knowDelay(queue string, step time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.delays[queue] == nil {
		t.delays[queue] = make(map[time.Duration]struct{})
	}
	t.delays[queue][step] = struct{}{}
}

// delayed counts what waits in the delay queues of a queue. Those that were not
// there are looked for once a minute, since others may make them.
func (t *Transport) delayed(ctx context.Context, queue string) (int64, error) {
	if !t.Capabilities().DurableDelay {
		return 0, nil
	}
	t.mu.Lock()
	all := time.Now().After(t.lookAgain[queue])
	if all {
		t.lookAgain[queue] = time.Now().Add(time.Minute)
	}
	known := maps.Clone(t.delays[queue])
	t.mu.Unlock()
	var n int64
	step := shortestDelay
	for range delaySteps {
		if _, ok := known[step]; ok || all {
			q, err := t.stat(ctx, delayQueue(queue, step))
			switch {
			case err == nil:
				n += int64(q.Messages)
				t.knowDelay(queue, step)
			case absent(err):
				t.forgetDelay(queue, step)
			default:
				return n, about("delay queue", delayQueue(queue, step), err)
			}
		}
		step *= 4
	}
	return n, nil
}

func (t *Transport) forgetDelay(queue string, step time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.delays[queue], step)
}
