package amqp

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/internal/amqptype"
	"github.com/leat-io/leat/runtime/transport"
)

// trimmed is what a dead letter can do without, if its headers are too large
// for a frame: the first goes first.
var trimmed = []string{
	transport.DeadStackHeader, "reason_poisoned", transport.DeadErrorHeader,
	"topic_poisoned", "handler_poisoned", "subscriber_poisoned",
	transport.DeadInstanceHeader, transport.DeadEnqueuedHeader, transport.DeadLastHeader, transport.DeadFirstHeader,
	transport.DeadClassHeader, transport.DeadCoordsHeader, transport.DeadConsumerHeader, transport.DeadAttemptsHeader,
	transport.DeadGroupHeader, transport.DeadTopicHeader, transport.DeadReasonHeader, transport.DeadVersionHeader,
}

// aside are headers by which the broker routes, to further queues, and for which
// it closes the channel if they are no list. They travel by other names. The
// form is part of the format.
var aside = map[string]string{"CC": "leat_amqp_CC", "BCC": "leat_amqp_BCC"}

// directReply is a ReplyTo that the broker takes only from who waits for replies
// on the same channel.
const directReply = "amq.rabbitmq.reply-to"

// headerRoom is what a header frame holds besides the table: frame, class,
// size, flags, and properties of up to 255 bytes each.
const headerRoom = 8 + 14 + 10*(maxShort+1) + 8

// encode makes what is published of a message. An error is about the message:
// no later try can help.
func (t *Transport) encode(m *message.Message, frameSize int) (amqp091.Publishing, error) {
	if n := int64(len(m.Payload)); n > int64(t.o.MaxMessage) {
		return amqp091.Publishing{}, fmt.Errorf("message has %d bytes, at most %d are taken (max_message)", n, int64(t.o.MaxMessage))
	}
	p := amqp091.Publishing{
		DeliveryMode: amqp091.Persistent, Timestamp: time.Now(), Body: m.Payload,
		Headers: make(amqp091.Table, len(m.Metadata)+1),
	}
	for name, v := range m.Metadata {
		if len(name) > maxShort {
			return p, fmt.Errorf("header name %q… has %d bytes, at most %d are legal", name[:32], len(name), maxShort)
		}
		if name == amqptype.Name || name == idHeader || setProperty(&p, name, v) {
			continue
		}
		p.Headers[name] = v
	}
	if types, odd := m.Metadata[amqptype.Name]; odd {
		amqptype.Restore(p.Headers, types)
	}
	for name, other := range aside {
		if v, ok := p.Headers[name]; ok {
			delete(p.Headers, name)
			p.Headers[other] = v
		}
	}
	identify(&p, m)
	if m.Payload == nil {
		p.Headers[nilHeader] = "1"
	}
	return p, fit(p.Headers, frameSize)
}

// identify gives a message its id.
func identify(p *amqp091.Publishing, m *message.Message) {
	if m.UUID == "" {
		return
	}
	if _, taken := m.Metadata[uuidHeader]; taken {
		p.Headers[idHeader] = m.UUID
	} else {
		p.Headers[uuidHeader] = m.UUID
	}
	if p.MessageId == "" && len(m.UUID) <= maxShort {
		p.MessageId = m.UUID
	}
}

// setProperty gives a message a property that its metadata names, if it can have it.
func setProperty(p *amqp091.Publishing, name, v string) bool {
	var to *string
	switch name {
	case contentTypeMeta:
		to = &p.ContentType
	case contentEncodingMeta:
		to = &p.ContentEncoding
	case correlationMeta:
		to = &p.CorrelationId
	case replyToMeta:
		to = &p.ReplyTo
	case typeMeta:
		to = &p.Type
	case appMeta:
		to = &p.AppId
	case messageIDMeta:
		to = &p.MessageId
	case priorityMeta:
		n, err := strconv.ParseUint(v, 10, 8)
		if err != nil || n == 0 {
			return false
		}
		p.Priority = uint8(n)
		return true
	default:
		return false
	}
	if v == "" || len(v) > maxShort || name == replyToMeta && v == directReply {
		return false
	}
	*to = v
	return true
}

// fit takes from a table what Leat has added until it fits into a frame.
func fit(table amqp091.Table, frameSize int) error {
	if frameSize == 0 { // no bound
		return nil
	}
	limit := frameSize - headerRoom
	size := tableSize(table)
	for _, name := range trimmed {
		if size <= limit {
			return nil
		}
		if v, ok := table[name]; ok {
			size -= 1 + len(name) + fieldSize(v)
			delete(table, name)
		}
	}
	if size > limit {
		return fmt.Errorf("headers have %d bytes, at most %d fit into a frame of the broker", size, limit)
	}
	return nil
}

// tableSize is that of a table on the wire.
func tableSize(t amqp091.Table) int {
	n := 4
	for k, v := range t {
		n += 1 + len(k) + fieldSize(v)
	}
	return n
}

func fieldSize(v any) int {
	switch v := v.(type) {
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case amqp091.Table:
		return 1 + tableSize(v)
	case []any:
		n := 5
		for _, x := range v {
			n += fieldSize(x)
		}
		return n
	default:
		return 9
	}
}
