package watermill

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/internal/headertext"
	"github.com/leat-io/leat/runtime/transport"
)

// Notes are metadata within the process: what a Subscriber's own message has no
// room for. It copies the metadata of what it resends, and nothing else that
// could carry them.
const (
	notePrefix = "\x00leat_"
	noteList   = notePrefix + "headers" // as they were received, where a map cannot hold them
	noteAgain  = notePrefix + "redelivered"
	noteAt     = notePrefix + "enqueued" // Unix nanoseconds
	noteOffset = notePrefix + "offset"
)

// metadataOf makes metadata of headers.
func metadataOf(headers transport.Headers) message.Metadata {
	md := make(message.Metadata, len(headers)+2)
	plain := true
	for _, h := range headers {
		_, again := md[h.Name]
		plain = plain && !again && !strings.HasPrefix(h.Name, notePrefix)
		md[h.Name] = h.Value
	}
	if !plain {
		md[noteList] = string(headertext.AppendPairs(nil, headers))
	}
	return md
}

// headersOf gives them back.
func headersOf(md message.Metadata) transport.Headers {
	if list, ok := md[noteList]; ok {
		headers, _ := headertext.Pairs(nil, list)
		return headers
	}
	headers := slices.DeleteFunc(transport.HeadersOf(md), func(h transport.Header) bool {
		return strings.HasPrefix(h.Name, notePrefix)
	})
	if len(headers) == 0 {
		return nil
	}
	return headers
}

// readNotes adds to a delivery what metadata has noted.
func readNotes(m *message.Message, d *transport.Delivery) {
	d.Headers = headersOf(m.Metadata)
	d.Redelivered = m.Metadata[noteAgain] != ""
	if at, err := strconv.ParseInt(m.Metadata[noteAt], 10, 64); err == nil {
		d.Enqueued = time.Unix(0, at)
	}
}

// eventID is the id of a CloudEvent, which is unique within its source; empty
// if the headers are of none.
func eventID(headers transport.Headers, prefixes ...string) string {
	for _, prefix := range prefixes {
		if id, source := headers.Get(prefix+"id"), headers.Get(prefix+"source"); id != "" && source != "" {
			return source + "#" + id
		}
	}
	return ""
}
