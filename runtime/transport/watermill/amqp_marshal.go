package watermill

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/internal/amqptype"
	"github.com/leat-io/leat/runtime/transport"
)

// Headers of ours on the wire, as those of Leat's own transport.
const (
	nilHeader = "leat_nil_payload" // the payload is nil, not empty
	idHeader  = "leat_id"          // the id, where Watermill's header cannot be
)

// brokerHeaders are the broker's own, which change from delivery to delivery.
var brokerHeaders = []string{"x-delivery-count", "x-acquired-count"} //nolint:gochecknoglobals // a constant

const uuidHeader = wmamqp.DefaultMessageUUIDHeaderKey

// amqpMarshaler writes what plain Watermill reads, and reads whatever there is.
type amqpMarshaler struct {
	// gone is told of a delivery that is none, which the Subscriber makes up
	// when its queue is deleted or its channel closed.
	gone chan<- error
}

var _ wmamqp.Marshaler = amqpMarshaler{}

var errNoDelivery = errors.New("queue deleted or channel closed by the broker")

// Marshal never fails. A value that was received with a type gets it back.
func (amqpMarshaler) Marshal(m *message.Message) (amqp.Publishing, error) {
	table := make(amqp.Table, len(m.Metadata)+2)
	for name, value := range m.Metadata {
		if strings.HasPrefix(name, notePrefix) || name == amqptype.Name {
			continue
		}
		table[name] = value
	}
	if types, odd := m.Metadata[amqptype.Name]; odd {
		amqptype.Restore(table, types)
	}
	if _, taken := table[uuidHeader]; taken {
		table[idHeader] = m.UUID
	} else {
		table[uuidHeader] = m.UUID
	}
	if m.Payload == nil {
		table[nilHeader] = true
	}
	return amqp.Publishing{Body: m.Payload, Headers: table, DeliveryMode: amqp.Persistent, Timestamp: time.Now()}, nil
}

// Unmarshal never fails for a delivery: an error would have the Subscriber
// requeue it at once, for ever.
func (a amqpMarshaler) Unmarshal(d amqp.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil {
		select {
		case a.gone <- errNoDelivery:
		default:
		}
		return nil, errNoDelivery
	}
	named := uuidHeader
	if _, own := d.Headers[idHeader].(string); own {
		named = idHeader
	}
	id, found := d.Headers[named].(string)
	body := d.Body
	if body == nil {
		body = []byte{}
	}
	if _, isNil := d.Headers[nilHeader]; isNil && len(body) == 0 {
		body = nil
	}
	var headers transport.Headers
	var types []amqptype.Header
	for name, v := range d.Headers {
		if name == named && found || name == nilHeader || slices.Contains(brokerHeaders, name) {
			continue
		}
		headers = append(headers, transport.Header{Name: name, Value: amqptype.Render(v)})
		if _, isString := v.(string); !isString {
			types = append(types, amqptype.Header{Name: name, Value: v})
		}
	}
	if len(types) > 0 {
		headers = append(headers, transport.Header{Name: amqptype.Name, Value: amqptype.Encode(types)})
	}
	if id == "" {
		id = d.MessageId
	}
	if id == "" {
		id = eventID(headers, "cloudEvents:", "cloudEvents_")
	}
	m := message.NewMessage(id, body)
	m.Metadata = metadataOf(headers)
	if d.Redelivered {
		m.Metadata[noteAgain] = "1"
	}
	if !d.Timestamp.IsZero() {
		m.Metadata[noteAt] = strconv.FormatInt(d.Timestamp.UnixNano(), 10)
	}
	return m, nil
}
