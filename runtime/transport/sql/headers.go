package sql

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/leat-io/leat/internal/headertext"
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
			b = headertext.AppendPair(b, h)
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
			headers, ok = headertext.Pairs(headers, text[1:])
		} else {
			headers, ok = headertext.Object(headers, text)
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
