package sql

import (
	"context"
	"errors"
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
	db *database
	spread
	topics map[string]audience // by name
}

// publication is one call of Publish. It has nothing of the caller's that may
// change: a call that has ended may be under way still.
type publication struct {
	topic string
	msgs  []outgoing
	at    []int // their places in what was to be published
	bytes int
	done  chan error
}

// own copies the payloads, into one piece.
func (pub *publication) own() {
	size := 0
	for _, m := range pub.msgs {
		size += len(m.payload)
	}
	piece := make([]byte, 0, size)
	for i := range pub.msgs {
		if m := &pub.msgs[i]; m.payload != nil {
			at := len(piece)
			piece = append(piece, m.payload...)
			m.payload = piece[at:len(piece):len(piece)]
		}
	}
}

// outgoing is a message as it is stored.
type outgoing struct {
	id, key          string
	headers, payload []byte
}

var _ transport.Producer = (*producer)(nil)

// OpenProducer opens a publisher, which connects with its first message: by
// then it is known what may be created. A topic that is missing is made at its
// first message, under TopologyDeclare.
func (t *Transport) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p := &producer{t: t, topics: map[string]audience{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
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
		key := m.Metadata[transport.KeyHeader]
		pub.msgs = append(pub.msgs, outgoing{m.UUID, key, encodeHeaders(m.Metadata, key), m.Payload})
		pub.at = append(pub.at, i)
		pub.bytes += n
	}
	pub.own()
	if len(pub.msgs) > 0 {
		err := p.enqueue(ctx, pub)
		if some, ok := errors.AsType[*transport.PublishError](err); ok {
			failed = append(failed, some.Failed...)
		} else if err != nil {
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
	if p.db == nil {
		db, err := p.t.connect(ctx, "")
		if err != nil {
			for _, pub := range p.take() {
				pub.done <- err
			}
			return
		}
		p.db = db
	}
	// Those who just had an answer may publish again: they come first, and share this one.
	goruntime.Gosched()
	missing, err := p.t.d.insert(ctx, p, func() []*publication {
		if batch == nil {
			batch = p.take()
		}
		return batch
	})
	if batch == nil {
		batch = p.take()
	}
	err = refuse(p.db.Explain(err))
	if sqldb.Rejected(err) {
		p.apart(ctx, batch, err)
		return
	}
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

// apart publishes one message after the other, since one of them is rejected
// for what it is.
func (p *producer) apart(ctx context.Context, batch []*publication, err error) {
	for _, pub := range batch {
		var failed []transport.PublishFailure
		for i, m := range pub.msgs {
			one := &publication{topic: pub.topic, msgs: []outgoing{m}}
			if len(batch) > 1 || len(pub.msgs) > 1 {
				var missing map[string]error
				missing, err = p.t.d.insert(ctx, p, func() []*publication { return []*publication{one} })
				if err = p.db.Explain(err); err == nil {
					err = missing[pub.topic]
				}
			}
			if err != nil {
				failed = append(failed, transport.PublishFailure{Index: pub.at[i], Err: err, Permanent: sqldb.Rejected(err)})
			}
		}
		if len(failed) > 0 {
			pub.done <- &transport.PublishError{Topic: pub.topic, Failed: failed}
		} else {
			pub.done <- nil
		}
		p.db.Wake(pub.topic)
	}
}
