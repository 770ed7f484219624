// Package headertext writes headers as text and reads them again, for brokers
// that keep them in one column or in one header.
package headertext

import (
	"encoding/binary"

	"github.com/tidwall/gjson"

	"github.com/leat-io/leat/runtime/transport"
)

// AppendPair writes a header so that any bytes of it survive: name and value,
// each after its length as an unsigned varint.
func AppendPair(b []byte, h transport.Header) []byte {
	for _, s := range [...]string{h.Name, h.Value} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// AppendPairs writes several.
func AppendPairs(b []byte, headers transport.Headers) []byte {
	for _, h := range headers {
		b = AppendPair(b, h)
	}
	return b
}

// Pairs reads what [AppendPairs] has written, and appends it to headers; false
// if text is something else.
func Pairs(headers transport.Headers, text string) (transport.Headers, bool) {
	next := func() (string, bool) {
		n, size := binary.Uvarint([]byte(text[:min(len(text), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(text)-size) { //nolint:gosec // size is at most len(text)
			return "", false
		}
		end := size + int(n) //nolint:gosec // n is at most len(text)
		s := text[size:end]
		text = text[end:]
		return s, true
	}
	for text != "" {
		name, ok := next()
		if !ok {
			return headers, false
		}
		value, ok := next()
		if !ok {
			return headers, false
		}
		headers = append(headers, transport.Header{Name: name, Value: value})
	}
	return headers, true
}

// Object reads a JSON object, and appends it to headers in the order it is
// written; false if text is none. Values that are not strings are taken as they
// are written, null as empty.
func Object(headers transport.Headers, text string) (transport.Headers, bool) {
	if !gjson.Valid(text) {
		return headers, false
	}
	object := gjson.Parse(text)
	if !object.IsObject() {
		return headers, false
	}
	object.ForEach(func(k, v gjson.Result) bool {
		h := transport.Header{Name: k.Str}
		switch v.Type {
		case gjson.String:
			h.Value = v.Str
		case gjson.False, gjson.True, gjson.Number, gjson.JSON:
			h.Value = v.Raw
		case gjson.Null:
		}
		headers = append(headers, h)
		return true
	})
	return headers, true
}
