package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

const (
	// uuidHeader has the message's id, as Watermill writes it.
	uuidHeader = "_watermill_message_uuid"
	// rawHeader keeps what metadata cannot hold of a record's headers: names
	// that come more than once, and values that are null. A copy of the
	// message, such as a dead letter, gets them back from it.
	rawHeader = "leat_kafka_headers"
	rawPrefix = "1:"
	// CloudEvents' attributes in binary mode.
	eventID     = "ce_id"
	eventSource = "ce_source"
)

// rich tells whether metadata cannot hold all of these headers.
func rich(hs []kgo.RecordHeader) bool {
	if len(hs) > manyHeaders {
		seen := make(map[string]bool, len(hs))
		return slices.ContainsFunc(hs, func(h kgo.RecordHeader) bool {
			again := seen[h.Key] && h.Key != uuidHeader
			seen[h.Key] = true
			return again || h.Value == nil
		})
	}
	for i, h := range hs {
		if h.Value == nil || h.Key != uuidHeader && has(hs[:i], h.Key) {
			return true
		}
	}
	return false
}

// manyHeaders is from where on comparing each with each is slow.
const manyHeaders = 16

// encodeRaw writes headers so that nothing of them is lost.
func encodeRaw(hs []kgo.RecordHeader) string {
	var b []byte
	for _, h := range hs {
		b = append(binary.AppendUvarint(b, uint64(len(h.Key))), h.Key...)
		if h.Value == nil {
			b = append(b, 0)
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(h.Value))+1), h.Value...)
	}
	return rawPrefix + base64.RawStdEncoding.EncodeToString(b)
}

// decodeRaw reads what encodeRaw has written; nil if it is something else.
func decodeRaw(text string) []kgo.RecordHeader {
	text, ok := strings.CutPrefix(text, rawPrefix)
	if !ok {
		return nil
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	sized := func(less uint64) ([]byte, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n < less || n-less > uint64(len(b)-size) { //nolint:gosec // size is at most len(b)
			b = b[max(0, min(size, len(b))):]
			return nil, size > 0 && n < less
		}
		end := size + int(n-less) //nolint:gosec // within b
		v := b[size:end:end]
		b = b[end:]
		return v, true
	}
	var hs []kgo.RecordHeader
	for len(b) > 0 {
		key, ok := sized(0)
		if !ok {
			return nil
		}
		value, ok := sized(1)
		if !ok {
			return nil
		}
		hs = append(hs, kgo.RecordHeader{Key: string(key), Value: value})
	}
	return hs
}

// recordHeaders makes headers of a message. The id comes last: of a name that
// comes twice, readers take the last.
func recordHeaders(id string, metadata map[string]string, b *buffer) []kgo.RecordHeader {
	hs := make([]kgo.RecordHeader, 0, len(metadata)+1)
	if _, keyed := metadata[transport.KeyHeader]; keyed && len(metadata) == 1 {
		return append(hs, kgo.RecordHeader{Key: uuidHeader, Value: b.text(id)})
	}
	raw, isRaw := metadata[rawHeader]
	original := decodeRaw(raw)
	isRaw = isRaw && original != nil
	if isRaw {
		hs = restored(original, metadata)
	}
	for _, h := range transport.HeadersOf(metadata) {
		if h.Name == transport.KeyHeader || isRaw && (h.Name == rawHeader || has(hs, h.Name)) {
			continue
		}
		hs = append(hs, kgo.RecordHeader{Key: h.Name, Value: b.text(h.Value)})
	}
	return append(hs, kgo.RecordHeader{Key: uuidHeader, Value: b.text(id)})
}

// restored are the original headers of those names whose metadata are still
// what they made of them.
func restored(original []kgo.RecordHeader, metadata map[string]string) []kgo.RecordHeader {
	last := map[string]string{}
	for _, h := range original {
		last[h.Key] = string(h.Value)
	}
	return slices.DeleteFunc(original, func(h kgo.RecordHeader) bool {
		now, ok := metadata[h.Key]
		return !ok || now != last[h.Key] || h.Key == uuidHeader || h.Key == transport.KeyHeader
	})
}

func has(hs []kgo.RecordHeader, name string) bool {
	return slices.ContainsFunc(hs, func(h kgo.RecordHeader) bool { return h.Key == name })
}
