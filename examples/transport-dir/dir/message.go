package dir

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// A message is a file that cat shows: a first line, a line for each header,
// an empty line and the payload as it is. Names and values are quoted as Go
// quotes them, so that any byte can be in them.
//
//	leat-dir 1 "id" 1767225600000000000 false
//	"content-type" "application/json"
//
//	{"total": 500}
//
// The number is when it was published, in nanoseconds; true says that the
// payload is nil. Any other file is a message too: all of it is the payload.
const firstLine = "leat-dir 1 %q %d %t"

func encode(m *message.Message, at time.Time) []byte {
	b := fmt.Appendf(nil, firstLine+"\n", m.UUID, at.UnixNano(), m.Payload == nil)
	for _, h := range transport.HeadersOf(m.Metadata) {
		b = fmt.Appendf(b, "%q %q\n", h.Name, h.Value)
	}
	return append(append(b, '\n'), m.Payload...)
}

func decode(d *transport.Delivery, file []byte) {
	d.Payload = file
	line, rest, ok := bytes.Cut(file, []byte("\n"))
	var id string
	var at int64
	var none bool
	if _, err := fmt.Sscanf(string(line), firstLine, &id, &at, &none); err != nil || !ok {
		return
	}
	var headers transport.Headers
	for {
		if line, rest, ok = bytes.Cut(rest, []byte("\n")); !ok {
			return
		}
		if len(line) == 0 {
			break
		}
		var h transport.Header
		if _, err := fmt.Sscanf(string(line), "%q %q", &h.Name, &h.Value); err != nil {
			return
		}
		headers = append(headers, h)
	}
	d.ID, d.Headers, d.Key, d.Enqueued, d.Payload = id, headers, headers.Get(transport.KeyHeader), time.Unix(0, at), rest
	if none {
		d.Payload = nil
	}
}
