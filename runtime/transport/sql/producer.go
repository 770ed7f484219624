package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

const (
	publishBatch = 1000     // messages in one transaction, more only in one Publish
	publishBytes = 16 << 20 // likewise
	maxMessage   = 900 << 20
)

// producer writes what many goroutines publish in transactions they share: the
// one that runs collects the next.
type producer struct {
	t *Transport

	mu     sync.Mutex
	closed bool
	queue  []*publication
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
	cancel context.CancelFunc

	// What the writing goroutine alone uses.
	db     *sqldb.DB
	spread uint32 // the partition of the last message without a key
}

// publication is one call of Publish.
type publication struct {
	topic string
	msgs  []*message.Message
	bytes int
	done  chan error
}

var _ transport.Producer = (*producer)(nil)

// OpenProducer opens a publisher, which connects with its first message: by
// then it is known what may be created. A topic that is missing is made at its
// first message, under TopologyDeclare.
func (t *Transport) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p := &producer{t: t, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go p.run(ctx)
	return p, nil
}

// Publish returns when the messages are committed, each with a delivery for
// every group of the topic.
func (p *producer) Publish(ctx context.Context, topicName string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	pub := &publication{topic: topicName, done: make(chan error, 1)}
	var failed []transport.PublishFailure
	if err := transport.CheckName("topic", topicName); err != nil {
		for i := range msgs {
			failed = append(failed, transport.PublishFailure{Index: i, Err: err, Permanent: true})
		}
		return &transport.PublishError{Topic: topicName, Failed: failed}
	}
	for i, m := range msgs {
		n := len(m.UUID) + len(m.Payload)
		for k, v := range m.Metadata {
			n += len(k) + len(v)
		}
		if n > maxMessage {
			failed = append(failed, transport.PublishFailure{Index: i, Err: fmt.Errorf("message has %d bytes, at most %d can be stored", n, maxMessage), Permanent: true})
			continue
		}
		pub.msgs = append(pub.msgs, m)
		pub.bytes += n
	}
	if len(pub.msgs) > 0 {
		if err := p.enqueue(ctx, pub); err != nil {
			return fmt.Errorf("publish to %q: %w", topicName, err)
		}
	}
	if len(failed) > 0 {
		return &transport.PublishError{Topic: topicName, Failed: failed}
	}
	return nil
}

// enqueue waits for a publication to be written. One that is still in the
// queue when ctx ends is taken out again: an outage piles up nothing.
func (p *producer) enqueue(ctx context.Context, pub *publication) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return transport.ErrClosed
	}
	p.queue = append(p.queue, pub)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-pub.done:
		return err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, pub); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	return context.Cause(ctx)
}

// Close lets what is queued be written, until ctx ends; then that fails.
func (p *producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	p.mu.Unlock()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.cancel()
		<-p.done
		return context.Cause(ctx)
	}
}

func (p *producer) run(ctx context.Context) {
	defer close(p.done)
	defer p.cancel()
	for {
		select {
		case <-p.wake:
		case <-p.stop:
			for p.waiting() {
				p.write(ctx)
			}
			return
		}
		for p.waiting() {
			p.write(ctx)
		}
	}
}

func (p *producer) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) > 0
}

// take empties the queue as far as one transaction goes.
func (p *producer) take() []*publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, msgs, bytes := 0, 0, 0
	for n < len(p.queue) {
		msgs += len(p.queue[n].msgs)
		bytes += p.queue[n].bytes
		if n > 0 && (msgs > publishBatch || bytes > publishBytes) {
			break
		}
		n++
	}
	batch := slices.Clone(p.queue[:n])
	p.queue = slices.Delete(p.queue, 0, n)
	return batch
}

// write publishes one batch. It is collected when the lock is there: the
// longer that took, the more share it.
func (p *producer) write(ctx context.Context) {
	var batch []*publication
	var missing map[string]error
	var err error
	if p.db == nil {
		if p.db, err = p.t.connect(ctx, ""); err != nil {
			for _, pub := range p.take() {
				pub.done <- err
			}
			return
		}
	}
	// Those who just had an answer may publish again: they come first, and share this one.
	goruntime.Gosched()
	err = p.db.InTx(ctx, func(tx *stdsql.Tx) error {
		if batch == nil {
			batch = p.take()
		}
		var err error
		missing, err = p.insert(context.WithoutCancel(ctx), tx, batch)
		return err
	})
	if batch == nil {
		batch = p.take()
	}
	err = refuse(err)
	woken := map[string]bool{}
	for _, pub := range batch {
		switch {
		case err != nil:
			pub.done <- err
		case missing[pub.topic] != nil:
			pub.done <- missing[pub.topic]
		default:
			pub.done <- nil
			if !woken[pub.topic] {
				woken[pub.topic] = true
				p.db.Wake(pub.topic)
			}
		}
	}
}
