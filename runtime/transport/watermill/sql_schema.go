package watermill

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/leat-io/leat/internal/headertext"
	"github.com/leat-io/leat/runtime/transport"
)

const (
	// binaryHeader holds, in base64, the headers that JSON could not give back
	// byte by byte.
	binaryHeader = "leat_binary_headers"
	// rawHeader holds the metadata column of a row that is no JSON object.
	rawHeader = "leat_raw_headers"
)

// pgSchema is watermill-sql's, but that no row stops a subscription and no
// header is changed on its way.
type pgSchema struct{ wmsql.DefaultPostgreSQLSchema }

// InsertQuery writes what plain Watermill reads.
func (s pgSchema) InsertQuery(topic string, msgs message.Messages) (wmsql.Query, error) {
	return s.DefaultPostgreSQLSchema.InsertQuery(topic, encoded(msgs))
}

// UnmarshalMessage reads whatever there is.
func (pgSchema) UnmarshalMessage(row wmsql.Scanner) (wmsql.Row, error) {
	var r wmsql.Row
	var transaction int64
	if err := row.Scan(&r.Offset, &transaction, &r.UUID, &r.Payload, &r.Metadata); err != nil {
		return wmsql.Row{}, fmt.Errorf("scan row: %w", err)
	}
	r.ExtraData = map[string]any{"transaction_id": transaction}
	decode(&r)
	return r, nil
}

// mySchema is the same for MySQL.
type mySchema struct{ wmsql.DefaultMySQLSchema }

// InsertQuery writes what plain Watermill reads.
func (s mySchema) InsertQuery(topic string, msgs message.Messages) (wmsql.Query, error) {
	return s.DefaultMySQLSchema.InsertQuery(topic, encoded(msgs))
}

// UnmarshalMessage reads whatever there is.
func (mySchema) UnmarshalMessage(row wmsql.Scanner) (wmsql.Row, error) {
	var r wmsql.Row
	if err := row.Scan(&r.Offset, &r.UUID, &r.Payload, &r.Metadata); err != nil {
		return wmsql.Row{}, fmt.Errorf("scan row: %w", err)
	}
	decode(&r)
	return r, nil
}

// decode makes the message of a row.
func decode(r *wmsql.Row) {
	id, headers := string(r.UUID), decodeMetadata(string(r.Metadata))
	if at := slices.IndexFunc(headers, func(h transport.Header) bool { return h.Name == idHeader }); at >= 0 && id == short(headers[at].Value) {
		id = headers[at].Value
		headers = slices.Delete(headers, at, at+1)
	}
	r.Msg = message.NewMessage(id, r.Payload)
	r.Msg.Metadata = metadataOf(headers)
	r.Msg.Metadata[noteOffset] = strconv.FormatInt(r.Offset, 10)
}

// readSQL adds the coordinates of a row to its delivery.
func readSQL(m *message.Message, d *transport.Delivery) {
	readNotes(m, d)
	d.Offset, _ = strconv.ParseInt(m.Metadata[noteOffset], 10, 64)
	d.Session = 0
	if d.ID == "" {
		d.ID = d.Coordinates()
	}
}

// encoded gives messages the metadata that survives JSON.
func encoded(msgs message.Messages) message.Messages {
	out := make(message.Messages, len(msgs))
	for i, m := range msgs {
		md := encodeMetadata(m.Metadata)
		id := m.UUID
		if len(id) > maxUUID || !clean(id) {
			md = maps.Clone(md)
			if md == nil {
				md = message.Metadata{}
			}
			md[idHeader], id = m.UUID, short(id)
		}
		out[i] = &message.Message{UUID: id, Payload: m.Payload, Metadata: md}
	}
	return out
}

// maxUUID is what the column of ids has room for.
const maxUUID = 36

// short stands in the column for an id that it has no room for.
func short(id string) string { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(id)).String() }

func encodeMetadata(md message.Metadata) message.Metadata {
	var odd transport.Headers
	for _, h := range transport.HeadersOf(md) {
		if !clean(h.Name) || !clean(h.Value) || h.Name == binaryHeader {
			odd = append(odd, h)
		}
	}
	if len(odd) == 0 {
		return md
	}
	md = maps.Clone(md)
	for _, h := range odd {
		delete(md, h.Name)
	}
	md[binaryHeader] = base64.StdEncoding.EncodeToString(headertext.AppendPairs(nil, odd))
	return md
}

// clean tells whether JSON, and a database's idea of it, gives s back.
func clean(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func decodeMetadata(text string) (headers transport.Headers) {
	if text == "" || text == "null" {
		return nil
	}
	all, ok := headertext.Object(nil, text)
	if !ok {
		return transport.Headers{{Name: rawHeader, Value: text}}
	}
	for _, h := range all {
		if h.Name == binaryHeader {
			if b, err := base64.StdEncoding.DecodeString(h.Value); err == nil {
				if odd, ok := headertext.Pairs(nil, string(b)); ok {
					headers = append(headers, odd...)
					continue
				}
			}
		}
		headers = append(headers, h)
	}
	return headers
}

// table names a table after a topic as watermill-sql does, as long as that is
// a name of its own: databases cut what is longer than limit, and a topic
// named offsets_x would have the offsets of x for its messages.
func table(prefix, topic string, limit int) string {
	name := prefix + topic
	if len(name) <= limit && (prefix == offsetsPrefix || !strings.HasPrefix(topic, "offsets_")) {
		return name
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(topic))
	tail := fmt.Sprintf("..%016x", sum.Sum64()) // an empty part is in no other name of ours
	return name[:min(len(name), limit-len(tail))] + tail
}

const (
	messagesPrefix = "watermill_"
	offsetsPrefix  = "watermill_offsets_"
)
