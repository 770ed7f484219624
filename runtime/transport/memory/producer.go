package memory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

type producer struct {
	b      *Broker
	closed atomic.Bool
}

// Publish copies the messages into the topic, which it makes if need be.
func (p *producer) Publish(ctx context.Context, topicName string, msgs ...*message.Message) error {
	if p.closed.Load() {
		return transport.ErrClosed
	}
	f := p.b.match(OpPublish, topicName, "")
	if f.before() {
		if err := f.strike(ctx); err != nil {
			return err
		}
	}
	failed := p.b.publish(topicName, msgs, f)
	if f.after() {
		if err := f.strike(ctx); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return &transport.PublishError{Topic: topicName, Failed: failed}
	}
	return nil
}

func (b *Broker) publish(topicName string, msgs []*message.Message, f *fault) []transport.PublishFailure {
	b.mu.Lock()
	defer b.mu.Unlock()
	var failed []transport.PublishFailure
	if b.topics[topicName] == nil {
		if err := transport.CheckName("topic", topicName); err != nil {
			for i := range msgs {
				failed = append(failed, transport.PublishFailure{Index: i, Err: err, Permanent: true})
			}
			return failed
		}
	}
	t := b.topic(topicName)
	now := time.Now()
	for i, m := range msgs {
		if f.hits(m) {
			failed = append(failed, transport.PublishFailure{Index: i, Err: f.Err, Permanent: f.Permanent})
			continue
		}
		part, ok := b.append(t, m, now)
		if !ok {
			failed = append(failed, transport.PublishFailure{Index: i, Err: ErrFull})
			continue
		}
		for _, c := range part.cursors {
			c.wake()
		}
		b.observePublished(part)
	}
	return failed
}

// Close ends this publisher alone.
func (p *producer) Close(context.Context) error {
	p.closed.Store(true)
	return nil
}
