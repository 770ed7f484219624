package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// producer publishes: idempotent, with confirmation by all copies in sync, and
// keys where Java's default partitioner puts them.
type producer struct {
	t       *Transport
	cl      *kgo.Client
	batches sync.Pool // of *batch
}

// deliveryTimeout is how long a message is tried before its publish fails.
const deliveryTimeout = 20 * time.Second

// linger has the messages of one Publish go into one batch: without it the
// first goes alone, and the others wait for it. Nothing waits for as long, since
// ProduceSync sends when it has all; only the first publish to a topic may.
const linger = 5 * time.Millisecond

// OpenProducer opens a publisher.
func (t *Transport) OpenProducer(context.Context) (transport.Producer, error) {
	if _, err := t.admin(); err != nil {
		return nil, err
	}
	p := &producer{t: t, batches: sync.Pool{New: func() any { return new(batch) }}}
	cl, err := t.client(
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(codecs[t.o.Compression]),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchMaxBytesFn(p.maxBytes),
		kgo.ProducerLinger(linger),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
		kgo.UnknownTopicRetries(4),
	)
	if err != nil {
		return nil, err
	}
	p.cl = cl
	return p, nil
}

func (p *producer) maxBytes(topic string) int32 {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if s, ok := p.t.topics[topic]; ok {
		return s.maxBytes
	}
	return int32(p.t.o.MaxMessageBytes) //nolint:gosec // bounded by the options
}

// Publish returns when all are confirmed, or it is known which are not.
func (p *producer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish to %q: %w", topic, err)
	}
	if err := transport.CheckName("topic", topic); err != nil {
		return allFailed(topic, len(msgs), transport.Refuse(err))
	}
	settings, err := p.t.settings(ctx, topic)
	switch {
	case err == nil:
	case hopeless(err):
		return allFailed(topic, len(msgs), err)
	default:
		return fmt.Errorf("publish to %q: %w", topic, err)
	}

	b := p.batches.Get().(*batch) //nolint:forcetypeassert // nothing else is put in
	records := b.fill(topic, msgs)
	done := make(chan kgo.ProduceResults, 1)
	go func() { done <- p.cl.ProduceSync(ctx, records...) }()
	var failed []transport.PublishFailure
	select {
	case results := <-done:
		for _, r := range results {
			if r.Err != nil {
				i := slices.Index(records, r.Record)
				failed = append(failed, p.failure(topic, settings, msgs[i], result{i, r.Err}))
			}
		}
	case <-ctx.Done(): // what is on its way is not waited for
		return fmt.Errorf("publish to %q: %w", topic, context.Cause(ctx))
	}
	if len(failed) > 0 {
		return &transport.PublishError{Topic: topic, Failed: failed}
	}
	p.batches.Put(b) // all is confirmed: nobody reads it any more
	return nil
}

type result struct {
	i   int
	err error
}

// failure sorts one message's error.
func (p *producer) failure(topic string, s topicSettings, m *message.Message, r result) transport.PublishFailure {
	f := transport.PublishFailure{Index: r.i, Err: refuse(r.err)}
	switch {
	case errors.Is(r.err, kerr.MessageTooLarge), errors.Is(r.err, kerr.RecordListTooLarge):
		p.t.forget(topic) // its limit may have changed; if so, the others of its batch were small enough
		size := sizeOf(m)
		f.Permanent = size > int64(s.maxBytes)
		f.Err = fmt.Errorf("message of %d bytes, where the topic takes %d: %w", size, s.maxBytes, r.err)
	case errors.Is(r.err, kerr.UnknownTopicOrPartition), errors.Is(r.err, kerr.UnknownTopicID):
		p.t.forget(topic)
	case errors.Is(r.err, kerr.InvalidRecord):
		f.Permanent = true
	default:
		f.Permanent = hopeless(r.err)
	}
	return f
}

// sizeOf is what a message takes in a batch of its own, at most.
func sizeOf(m *message.Message) int64 {
	const batch, record, header = 12 + 61, 40, 10
	n := batch + record + len(m.Payload) + header + len(m.UUID) + len(uuidHeader)
	for k, v := range m.Metadata {
		n += header + len(k) + len(v)
	}
	return int64(n)
}

// hopeless tells whether a publish can never succeed. It has a list of its own,
// since a message of which this is said becomes a dead letter: what is refused
// when a worker starts may be an outage later, such as a certificate that has
// run out, or fewer brokers than a new topic wants copies.
func hopeless(err error) bool {
	return slices.ContainsFunc([]error{
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.InvalidTopicException, kerr.InvalidConfig, kerr.PolicyViolation,
	}, func(never error) bool { return errors.Is(err, never) })
}

func allFailed(topic string, n int, err error) error {
	e := &transport.PublishError{Topic: topic}
	for i := range n {
		e.Failed = append(e.Failed, transport.PublishFailure{Index: i, Err: err, Permanent: true})
	}
	return e
}

// Close waits for what is on its way, up to the end of ctx.
func (p *producer) Close(ctx context.Context) error {
	err := p.cl.Flush(ctx)
	p.cl.Close()
	return err
}
