package watermill

import (
	"encoding/base64"
	"slices"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/internal/headertext"
	"github.com/leat-io/leat/runtime/transport"
)

// kafkaMarshaler writes what plain Watermill reads, and reads whatever there
// is. The key is the record's; nil and empty payloads are two things.
type kafkaMarshaler struct{}

var _ kafka.MarshalerUnmarshaler = kafkaMarshaler{}

// Marshal never fails. The id comes last: of a name that comes twice, readers
// take the last.
func (kafkaMarshaler) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	r := &sarama.ProducerMessage{Topic: topic}
	if m.Payload != nil {
		r.Value = sarama.ByteEncoder(m.Payload)
	}
	for _, h := range restored(m.Metadata) {
		if h.Name == transport.KeyHeader {
			r.Key = sarama.StringEncoder(h.Value)
			continue
		}
		r.Headers = append(r.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: []byte(h.Value)})
	}
	r.Headers = append(r.Headers, sarama.RecordHeader{Key: []byte(kafka.UUIDHeaderKey), Value: []byte(m.UUID)})
	return r, nil
}

// Unmarshal never fails: an error would end the claim, which comes back to the
// same record.
func (kafkaMarshaler) Unmarshal(r *sarama.ConsumerMessage) (*message.Message, error) {
	headers := make(transport.Headers, 0, len(r.Headers)+2)
	at := -1
	for i, h := range r.Headers {
		headers = append(headers, transport.Header{Name: string(h.Key), Value: string(h.Value)})
		if string(h.Key) == kafka.UUIDHeaderKey {
			at = i
		}
	}
	id := ""
	if at >= 0 {
		id = headers[at].Value
		headers = slices.Delete(headers, at, at+1)
	}
	if id == "" {
		id = eventID(headers, "ce_")
	}
	if list := repeats(headers); list != "" {
		headers = append(headers, transport.Header{Name: listHeader, Value: list})
	}
	if len(r.Key) > 0 {
		headers = append(headers, transport.Header{Name: transport.KeyHeader, Value: string(r.Key)})
	}
	m := message.NewMessage(id, r.Value)
	m.Metadata = metadataOf(headers)
	return m, nil
}

// listHeader keeps headers whose names come more than once, which a copy of
// the message, such as a dead letter, gets back from it.
const listHeader = "leat_kafka_list"

// repeats encodes headers of which a name comes more than once; empty if none does.
func repeats(headers transport.Headers) string {
	seen := map[string]bool{}
	again := false
	for _, h := range headers {
		again = again || seen[h.Name]
		seen[h.Name] = true
	}
	if !again {
		return ""
	}
	return base64.StdEncoding.EncodeToString(headertext.AppendPairs(nil, headers))
}

// restored are the headers of metadata, with those back that came more than
// once, as far as nobody has changed them.
func restored(md message.Metadata) transport.Headers {
	now := headersOf(md)
	b, err := base64.StdEncoding.DecodeString(now.Get(listHeader))
	list, ok := headertext.Pairs(nil, string(b))
	if err != nil || !ok || len(list) == 0 {
		return now
	}
	last := list.Map()
	list = slices.DeleteFunc(list, func(h transport.Header) bool {
		v, there := md[h.Name]
		return !there || v != last[h.Name]
	})
	for _, h := range transport.HeadersOf(now.Map()) {
		if _, listed := last[h.Name]; h.Name != listHeader && (!listed || last[h.Name] != h.Value) {
			list = append(list, h)
		}
	}
	return list
}
