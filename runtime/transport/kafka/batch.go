package kafka

import (
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// batch has the records of one Publish, and the bytes that they point to. They
// are copies: the caller may change its messages when its context ends, and
// what is on its way goes on. One that is free again is used again, while it is
// in the processor's cache.
type batch struct {
	buffer  buffer
	slots   []kgo.Record
	records []*kgo.Record
}

// largestBatch is how large a buffer is kept.
const largestBatch = 1 << 20

func (b *batch) fill(topic string, msgs []*message.Message) []*kgo.Record {
	size := 0
	for _, m := range msgs {
		size += len(m.Payload) + len(m.UUID)
		for _, v := range m.Metadata {
			size += len(v)
		}
	}
	if cap(b.buffer) > largestBatch {
		b.buffer = nil
	}
	b.buffer = slices.Grow(b.buffer[:0], size)
	clear(b.slots)
	b.slots = slices.Grow(b.slots[:0], len(msgs))[:len(msgs)]
	b.records = b.records[:0]
	for i, m := range msgs {
		r := &b.slots[i]
		*r = kgo.Record{Topic: topic, Headers: recordHeaders(m.UUID, m.Metadata, &b.buffer)}
		if key := m.Metadata[transport.KeyHeader]; key != "" {
			r.Key = b.buffer.text(key)
		}
		if m.Payload != nil {
			r.Value = b.buffer.bytes(m.Payload)
		}
		b.records = append(b.records, r)
	}
	return b.records
}

// buffer is what records are copied into.
type buffer []byte

func (b *buffer) text(s string) []byte { return b.added(append(*b, s...)) }

func (b *buffer) bytes(s []byte) []byte { return b.added(append(*b, s...)) }

func (b *buffer) added(all []byte) []byte {
	n := len(*b)
	*b = all
	if n == len(all) {
		return []byte{}
	}
	return all[n:len(all):len(all)]
}
