package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/leat-io/leat/runtime/transport"
)

// publishTimeout bounds one try of telling a broker or a store something.
const publishTimeout = 30 * time.Second

// maxPublishBatch bounds how many messages are published in one call.
const maxPublishBatch = 512

// outlet publishes for many consumers: what waits for the same topic goes out
// together, one call at a time for each topic, so that no topic waits for another.
type outlet struct {
	producer transport.Producer

	mu     sync.Mutex
	topics map[string][]*publication // waiting; there is a runner for each topic in the map
}

// publication is the messages of one delivery for one topic.
type publication struct {
	msgs []*message.Message
	done chan error
}

func newOutlet(p transport.Producer) *outlet {
	return &outlet{producer: p, topics: make(map[string][]*publication)}
}

// publish waits until the broker has confirmed msgs, or for the error.
func (o *outlet) publish(ctx context.Context, topic string, msgs []*message.Message) error {
	p := &publication{msgs: msgs, done: make(chan error, 1)}
	o.mu.Lock()
	waiting, runs := o.topics[topic]
	o.topics[topic] = append(waiting, p)
	o.mu.Unlock()
	if !runs {
		go o.run(context.WithoutCancel(ctx), topic)
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run publishes what waits for a topic until nothing does.
func (o *outlet) run(ctx context.Context, topic string) {
	for {
		o.mu.Lock()
		waiting := o.topics[topic]
		if len(waiting) == 0 {
			delete(o.topics, topic)
			o.mu.Unlock()
			return
		}
		n, size := 0, 0
		for n < len(waiting) && (n == 0 || size+len(waiting[n].msgs) <= maxPublishBatch) {
			size += len(waiting[n].msgs)
			n++
		}
		batch := waiting[:n:n]
		o.topics[topic] = waiting[n:]
		o.mu.Unlock()
		o.send(ctx, topic, batch, size)
	}
}

// send publishes one batch and tells each publication its own part of the answer.
func (o *outlet) send(ctx context.Context, topic string, batch []*publication, size int) {
	msgs := make([]*message.Message, 0, size)
	for _, p := range batch {
		msgs = append(msgs, p.msgs...)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := o.try(ctx, topic, msgs)
	partly, ok := errors.AsType[*transport.PublishError](err)
	ok = ok && len(partly.Failed) > 0
	for i := 0; ok && i < len(partly.Failed); i++ {
		ok = partly.Failed[i].Index >= 0 && partly.Failed[i].Index < len(msgs)
	}
	at := 0
	for _, p := range batch {
		mine := err
		if ok {
			var failed []transport.PublishFailure
			for _, f := range partly.Failed {
				if f.Index >= at && f.Index < at+len(p.msgs) {
					f.Index -= at
					failed = append(failed, f)
				}
			}
			mine = nil
			if len(failed) > 0 {
				mine = &transport.PublishError{Topic: topic, Failed: failed}
			}
		}
		p.done <- mine
		at += len(p.msgs)
	}
}

// try survives a producer that panics.
func (o *outlet) try(ctx context.Context, topic string, msgs []*message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &transport.Panicked{Value: v, Stack: debug.Stack()}
		}
	}()
	return o.producer.Publish(ctx, topic, msgs...)
}

// publishOutputs publishes what a run has left, in order, until all of it is
// confirmed. It returns an error if some of it can never be, or if the drain
// ran out of time.
func (c *consumer) publishOutputs(it *item, r *result) error {
	if err := c.checkOutputs(r.outputs); err != nil {
		return err
	}
	nth := make(map[[2]string]int)
	for i := 0; i < len(r.outputs); {
		topic := r.outputs[i].Topic
		var msgs []*message.Message
		for ; i < len(r.outputs) && r.outputs[i].Topic == topic && len(msgs) < maxPublishBatch; i++ {
			m := r.outputs[i].Message
			slot := [2]string{topic, m.Metadata.Get(transport.KeyHeader)}
			msgs = append(msgs, c.identify(it.d, m, slot, nth[slot]))
			nth[slot]++
		}
		spans := c.beginSends(r, topic, msgs)
		err := c.publishUntilConfirmed(c.out.Load(), topic, msgs)
		endSends(spans, err)
		if err != nil {
			return err
		}
		c.countOutputs(len(msgs))
	}
	return nil
}

// checkOutputs fills in publish_to, and refuses what can never be published
// before any of it is.
func (c *consumer) checkOutputs(outs []transport.Output) error {
	for i := range outs {
		if outs[i].Topic == "" {
			outs[i].Topic = c.p.PublishTo
		}
		switch {
		case outs[i].Topic == "":
			return errNoPublishTo
		case outs[i].Message == nil:
			return errors.New("handler left a nil message to publish")
		}
		if err := transport.CheckName("topic", outs[i].Topic); err != nil {
			return err
		}
	}
	return nil
}

// identify gives an output its id: derived from the source, so that the same
// output of another run of it is recognised, unless the author chose one.
func (c *consumer) identify(d *transport.Delivery, m *message.Message, slot [2]string, n int) *message.Message {
	out := &message.Message{UUID: m.UUID, Payload: m.Payload, Metadata: m.Metadata}
	if out.Metadata == nil {
		out.Metadata = message.Metadata{}
	}
	if m.UUID != "" && (m.UUID == d.ID || !randomID(m.UUID)) {
		return out
	}
	if d.ID == "" {
		if out.UUID == "" {
			out.UUID = uuid.NewString()
		}
		return out
	}
	var name []byte
	for _, part := range []string{d.ID, c.name, slot[0], slot[1]} {
		name = binary.AppendUvarint(name, uint64(len(part)))
		name = append(name, part...)
	}
	name = binary.AppendUvarint(name, uint64(n)) //nolint:gosec // counts up from 0
	out.UUID = uuid.NewSHA1(derivedIDs, name).String()
	out.Metadata = make(message.Metadata, len(m.Metadata)+1)
	maps.Copy(out.Metadata, m.Metadata)
	out.Metadata[transport.DerivedHeader] = "1"
	return out
}

// derivedIDs is the namespace of derived ids. It is part of the format.
var derivedIDs = uuid.MustParse("5b1d9a4e-6f0c-5a7e-9c33-1ea7000000d1")

// randomID tells whether an id says nothing about its message.
func randomID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.Version() == 4
}

// publishDead publishes the copy of a message that has failed for good, made
// from what was received. It returns an error only if the drain ran out of time.
func (c *consumer) publishDead(it *item, r *result) error {
	d, topic := it.d, r.dead.Topic
	topic, err := transport.DeadTopic(topic, d.Topic, c.p.Group)
	if err != nil {
		topic = c.dead[d.Topic]
	}
	now := time.Now()
	first := it.first
	if first.IsZero() {
		first = now
	}
	info := transport.DeadInfo{
		Reason: r.reason, Err: r.err, Topic: d.Topic, Coordinates: d.Coordinates(),
		Group: c.p.Group, Consumer: c.name, Instance: c.router.opts.Instance.ID,
		Attempts: r.n, FirstFailure: first, LastFailure: now, Enqueued: d.Enqueued,
	}
	m := transport.DeadMessage(d.ID, d.Payload, d.Headers.Map(), info)
	span := c.beginSend(r.trace, c.t, topic, m)
	err = c.persist(stepDeadLetter, topic, func(ctx context.Context) error {
		err := c.own.Load().publish(ctx, topic, []*message.Message{m})
		if partly, ok := errors.AsType[*transport.PublishError](err); ok && len(partly.Failed) > 0 && partly.Failed[0].Permanent && info.Err != nil {
			info.Err = nil // perhaps what we add makes it too large
			m = transport.DeadMessage(d.ID, d.Payload, d.Headers.Map(), info)
		}
		return err
	})
	endSends(span, err)
	if err == nil {
		c.log.ErrorContext(c.base, "message dead-lettered", "topic", d.Topic, "message_id", d.ID,
			"dead_letter", topic, "reason", r.reason, "attempts", r.n, "error", r.text)
	}
	return err
}

// publishUntilConfirmed repeats a publish, each time with only what failed. It
// returns an error for what is permanent, or if the drain ran out of time.
func (c *consumer) publishUntilConfirmed(o *outlet, topic string, msgs []*message.Message) error {
	var forever error
	err := c.persist(stepOutput, topic, func(ctx context.Context) error {
		err := o.publish(ctx, topic, msgs)
		partly, ok := errors.AsType[*transport.PublishError](err)
		if !ok {
			return err
		}
		var again []*message.Message
		for _, f := range partly.Failed {
			if f.Permanent {
				forever = fmt.Errorf("output to topic %q: %w", topic, f.Err)
				return nil
			}
			again = append(again, msgs[f.Index])
		}
		msgs = again
		return err
	})
	if err == nil {
		err = forever
	}
	return err
}
