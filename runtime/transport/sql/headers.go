package sql

import (
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/leat-io/leat/runtime/transport"
)

// rawHeader holds the headers column of a row whose content is neither of the
// two forms, so that nothing is lost and nothing stuck.
const rawHeader = "leat_raw_headers"

// binaryHeaders begins the form for headers that JSON could not give back byte
// by byte; JSON text never begins so.
const binaryHeaders = 0x00

// encodeHeaders writes the headers column: nil without headers, else a JSON
// object, which people can read and write by hand, else length-prefixed pairs.
// A key that is not empty has a column of its own.
func encodeHeaders(headers map[string]string, key string) []byte {
	n := len(headers)
	if key != "" {
		n--
	}
	if n <= 0 {
		return nil
	}
	valid := true
	for k, v := range headers {
		valid = valid && utf8.ValidString(k) && utf8.ValidString(v)
	}
	b := make([]byte, 0, 64*n)
	if valid {
		b = append(b, '{')
	} else {
		b = append(b, binaryHeaders)
	}
	for _, h := range transport.HeadersOf(headers) {
		if h.Name == transport.KeyHeader && key != "" {
			continue
		}
		if !valid {
			b = appendSized(appendSized(b, h.Name), h.Value)
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, h.Name), ':')
		b = appendQuoted(b, h.Value)
	}
	if !valid {
		return b
	}
	return append(b, '}')
}

func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) //nolint:errchkjson // a string cannot fail
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// decodeHeaders reads the headers column, whatever it holds. Values by hand
// that are not strings are taken as they are written.
func decodeHeaders(text, key string) transport.Headers {
	if text == "" && key == "" {
		return nil
	}
	var headers transport.Headers
	if text != "" {
		headers = make(transport.Headers, 0, 4)
		var ok bool
		if text[0] == binaryHeaders {
			headers, ok = decodePairs(headers, text[1:])
		} else {
			headers, ok = decodeJSON(headers, text)
		}
		if !ok {
			headers = append(headers[:0], transport.Header{Name: rawHeader, Value: text})
		}
	}
	if key != "" {
		headers = append(headers, transport.Header{Name: transport.KeyHeader, Value: key})
	}
	return headers
}

func decodeJSON(headers transport.Headers, text string) (transport.Headers, bool) {
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

func decodePairs(headers transport.Headers, rest string) (transport.Headers, bool) {
	next := func() (string, bool) {
		n, size := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(rest)-size) { //nolint:gosec // size is at most len(rest)
			return "", false
		}
		end := size + int(n) //nolint:gosec // n is at most len(rest)
		s := rest[size:end]
		rest = rest[end:]
		return s, true
	}
	for rest != "" {
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
