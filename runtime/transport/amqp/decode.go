package amqp

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/internal/amqptype"
	"github.com/leat-io/leat/runtime/transport"
)

const (
	// uuidHeader holds a message's id, as Watermill writes it.
	uuidHeader = "_watermill_message_uuid"
	// idHeader holds it where the message has metadata of that name.
	idHeader = "leat_id"
	// nilHeader marks a payload that is nil: the protocol knows only empty ones.
	nilHeader = "leat_nil_payload"
)

// Properties of the protocol that a message may have, as its metadata has them.
const (
	contentTypeMeta     = "amqp_content_type"
	contentEncodingMeta = "amqp_content_encoding"
	correlationMeta     = "amqp_correlation_id"
	replyToMeta         = "amqp_reply_to"
	typeMeta            = "amqp_type"
	appMeta             = "amqp_app_id"
	messageIDMeta       = "amqp_message_id"
	priorityMeta        = "amqp_priority"
	expirationMeta      = "amqp_expiration" // not given to a message again: a copy must not expire
	userMeta            = "amqp_user_id"    // nor this: the broker takes it from its own user alone
)

// counters are headers of the broker's own, that change with each delivery.
var counters = []string{"x-delivery-count", "x-acquired-count"}

// decode reads a delivery into d, whatever it holds: foreign or odd headers
// stop no message.
func decode(in *amqp091.Delivery, d *transport.Delivery) {
	table := in.Headers
	if state, ok := table[delayHeader].(amqp091.Table); ok {
		table = readDelay(state, d)
	}
	d.Payload = in.Body
	d.Redelivered = in.Redelivered
	d.Enqueued = in.Timestamp

	h := make(transport.Headers, 0, len(table)+2)
	id, own := table[idHeader].(string)
	var types []amqptype.Header
	for name, v := range table {
		name = original(table, name)
		text, isString := v.(string)
		switch {
		case name == idHeader && own:
			continue
		case name == uuidHeader && isString && !own:
			id = text
			continue
		case name == nilHeader && len(in.Body) == 0:
			d.Payload = nil
			continue
		case slices.Contains(counters, name):
			continue
		case !isString:
			text = amqptype.Render(v)
			types = append(types, amqptype.Header{Name: name, Value: v})
		}
		h = append(h, transport.Header{Name: name, Value: text})
	}
	if len(types) > 0 {
		h = append(h, transport.Header{Name: amqptype.Name, Value: amqptype.Encode(types)})
	}
	if id == "" {
		id = in.MessageId
	}
	if id == "" {
		id = cloudEvent(table)
	}
	h = appendProperties(h, in, id)
	if len(h) > 1 {
		slices.SortFunc(h, func(a, b transport.Header) int { return strings.Compare(a.Name, b.Name) })
	}
	d.ID, d.Headers = id, h
	if len(h) == 0 {
		d.Headers = nil
	}
	d.Key = h.Get(transport.KeyHeader)
}

// original is the name of a header before it was set aside.
func original(table amqp091.Table, name string) string {
	for own, other := range aside {
		if _, taken := table[own]; name == other && !taken {
			return own
		}
	}
	return name
}

// cloudEvent is the id of an event in CloudEvents' binding for AMQP: it is
// unique within its source.
func cloudEvent(table amqp091.Table) string {
	for _, prefix := range []string{"cloudEvents:", "cloudEvents_"} {
		id, _ := table[prefix+"id"].(string)
		source, _ := table[prefix+"source"].(string)
		if id != "" && source != "" {
			return source + "#" + id
		}
	}
	return ""
}

// appendProperties has what others set beside headers. Time and delivery mode
// are the broker's own business.
func appendProperties(h transport.Headers, in *amqp091.Delivery, id string) transport.Headers {
	add := func(name, value string) {
		if value != "" {
			h = append(h, transport.Header{Name: name, Value: value})
		}
	}
	add(contentTypeMeta, in.ContentType)
	add(contentEncodingMeta, in.ContentEncoding)
	add(correlationMeta, in.CorrelationId)
	add(replyToMeta, in.ReplyTo)
	add(typeMeta, in.Type)
	add(appMeta, in.AppId)
	add(expirationMeta, in.Expiration)
	add(userMeta, in.UserId)
	if in.MessageId != id {
		add(messageIDMeta, in.MessageId)
	}
	if in.Priority > 0 {
		add(priorityMeta, strconv.Itoa(int(in.Priority)))
	}
	return h
}

// readDelay reads what a delayed copy carries, and gives the message's own headers.
func readDelay(state amqp091.Table, d *transport.Delivery) amqp091.Table {
	number := func(name string) int64 {
		n, _ := state[name].(int64)
		return n
	}
	d.Attempts = int(number(delayAttempts))
	if first := number(delayFirst); first != 0 {
		d.FirstFailure = time.UnixMicro(first)
	}
	d.LastError, _ = state[delayError].(string)
	if due := number(delayDue); due != 0 {
		d.NotBefore = time.UnixMilli(due)
	}
	table, _ := state[delayHeaders].(amqp091.Table)
	return table
}
