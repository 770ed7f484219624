package watermill

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// republish is what a dead letter does with metadata.
func republish(m *message.Message) *message.Message {
	d := &transport.Delivery{ID: m.UUID, Payload: m.Payload}
	readNotes(m, d)
	return &message.Message{UUID: m.UUID, Payload: m.Payload, Metadata: d.Headers.Map()}
}

func TestAMQPHeadersKeepTheirTypes(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	table := amqp.Table{
		"nil": nil, "bool": true, "byte": byte(7), "int8": int8(-7), "int16": int16(-300), "int32": int32(-70000), "int64": int64(math.MinInt64),
		"float32": float32(1.5), "float64": math.Pi, "inf": math.Inf(-1), "decimal": amqp.Decimal{Scale: 2, Value: 314}, "time": at,
		"string": "text", "bytes": []byte{0, 0xff}, "empty": amqp.Table{}, "table": amqp.Table{"a": int32(1), "b": []any{nil, "x", true}},
		"array": []any{int64(1), amqp.Table{"c": []byte("d")}}, "": "no name",
	}
	table["nan"] = math.NaN()
	d := amqp.Delivery{Acknowledger: &amqp.Channel{}, Headers: table, Body: []byte("x"), MessageId: "id of the broker's", Redelivered: true, Timestamp: at}
	m, err := amqpMarshaler{}.Unmarshal(d)
	require.NoError(t, err)
	require.Equal(t, "id of the broker's", m.UUID)
	var read transport.Delivery
	readNotes(m, &read)
	require.True(t, read.Redelivered)
	require.True(t, at.Equal(read.Enqueued))
	require.Equal(t, "-70000", read.Headers.Get("int32"))
	require.Equal(t, "true", read.Headers.Get("bool"))
	require.JSONEq(t, `{"a":1,"b":[null,"x",true]}`, read.Headers.Get("table"), "as the kind amqp has it")

	out, err := amqpMarshaler{}.Marshal(republish(m))
	require.NoError(t, err)
	nan, isNaN := out.Headers["nan"].(float64)
	require.True(t, isNaN && math.IsNaN(nan))
	delete(table, "nan")
	delete(out.Headers, "nan")
	require.True(t, at.Equal(out.Headers["time"].(time.Time)))
	table["time"], out.Headers["time"] = nil, nil
	table[uuidHeader] = m.UUID
	require.Equal(t, table, out.Headers)
	require.NoError(t, out.Headers.Validate())

	changed := republish(m)
	changed.Metadata["int32"] = "by a handler"
	out, err = amqpMarshaler{}.Marshal(changed)
	require.NoError(t, err)
	require.Equal(t, "by a handler", out.Headers["int32"])
}

func TestAMQPIDs(t *testing.T) {
	t.Parallel()
	for _, m := range []*message.Message{
		{UUID: "plain", Payload: []byte{}, Metadata: message.Metadata{}},
		{UUID: "", Payload: nil, Metadata: message.Metadata{"a": "1"}},
		{UUID: "own", Payload: []byte("x"), Metadata: message.Metadata{uuidHeader: "not the id"}},
	} {
		p, err := amqpMarshaler{}.Marshal(m)
		require.NoError(t, err)
		back, err := amqpMarshaler{}.Unmarshal(amqp.Delivery{Acknowledger: &amqp.Channel{}, Headers: p.Headers, Body: p.Body})
		require.NoError(t, err)
		require.Equal(t, m.UUID, back.UUID)
		require.Equal(t, m.Payload == nil, back.Payload == nil)
		require.Equal(t, m.Metadata, back.Metadata)
	}
	event := amqp.Delivery{Acknowledger: &amqp.Channel{}, Headers: amqp.Table{"cloudEvents:id": "1", "cloudEvents:source": "/shop"}}
	m, err := amqpMarshaler{}.Unmarshal(event)
	require.NoError(t, err)
	require.Equal(t, "/shop#1", m.UUID)
}

// W6 and W7: the stock marshaler fails on a header that is no string, which has
// the Subscriber requeue it for ever, and takes nothing for a message.
func TestStockAMQPMarshalerIsKnownBad(t *testing.T) {
	t.Parallel()
	typed := amqp.Delivery{Acknowledger: &amqp.Channel{}, Headers: amqp.Table{"attempt": int32(1)}}
	_, err := wmamqp.DefaultMarshaler{}.Unmarshal(typed)
	require.ErrorContains(t, err, "not a string")
	_, err = amqpMarshaler{}.Unmarshal(typed)
	require.NoError(t, err)

	func() {
		defer func() { _ = recover() }() // it makes a map of -1 entries, or an empty message
		phantom, err := wmamqp.DefaultMarshaler{}.Unmarshal(amqp.Delivery{})
		require.NoError(t, err)
		require.Empty(t, phantom.UUID)
	}()
	gone := make(chan error, 1)
	_, err = amqpMarshaler{gone: gone}.Unmarshal(amqp.Delivery{})
	require.ErrorIs(t, err, errNoDelivery)
	require.ErrorIs(t, <-gone, errNoDelivery)
}

// consumed is a record as a consumer gets it.
func consumed(t *testing.T, m *message.Message) *sarama.ConsumerMessage {
	t.Helper()
	p, err := kafkaMarshaler{}.Marshal("orders", m)
	require.NoError(t, err)
	r := &sarama.ConsumerMessage{}
	for _, h := range p.Headers {
		r.Headers = append(r.Headers, &sarama.RecordHeader{Key: h.Key, Value: h.Value})
	}
	if p.Key != nil {
		r.Key, err = p.Key.Encode()
		require.NoError(t, err)
	}
	if p.Value != nil {
		r.Value, err = p.Value.Encode()
		require.NoError(t, err)
	}
	return r
}

func TestKafkaRecords(t *testing.T) {
	t.Parallel()
	for _, m := range []*message.Message{
		{UUID: "", Metadata: message.Metadata{}},
		{UUID: "id", Payload: []byte{}, Metadata: message.Metadata{transport.KeyHeader: "\x00\xff", "a": "1", "": ""}},
		{UUID: "id", Payload: []byte("x"), Metadata: message.Metadata{kafka.UUIDHeaderKey: "not the id"}},
	} {
		back, err := kafkaMarshaler{}.Unmarshal(consumed(t, m))
		require.NoError(t, err)
		require.Equal(t, m.UUID, back.UUID)
		require.Equal(t, m.Payload == nil, back.Payload == nil)
		require.Equal(t, m.Metadata, back.Metadata)
	}
}

// Headers whose names come more than once survive a dead letter, and plain
// Watermill reads a message of ours.
func TestKafkaRepeatedHeaders(t *testing.T) {
	t.Parallel()
	h := func(k, v string) *sarama.RecordHeader { return &sarama.RecordHeader{Key: []byte(k), Value: []byte(v)} }
	foreign := &sarama.ConsumerMessage{
		Key: []byte("k"), Value: []byte("x"),
		Headers: []*sarama.RecordHeader{h("a", "1"), h("b", "x"), h("a", "2"), h("ce_id", "7"), h("ce_source", "/shop")},
	}
	m, err := kafkaMarshaler{}.Unmarshal(foreign)
	require.NoError(t, err)
	require.Equal(t, "/shop#7", m.UUID)
	again := consumed(t, republish(m))
	var got []string
	for _, h := range again.Headers {
		got = append(got, string(h.Key)+"="+string(h.Value))
	}
	require.Equal(t, []string{"a=1", "b=x", "a=2", "ce_id=7", "ce_source=/shop", kafka.UUIDHeaderKey + "=/shop#7"}, got)
	require.Equal(t, "k", string(again.Key))

	plain, err := kafka.DefaultMarshaler{}.Unmarshal(consumed(t, &message.Message{UUID: "id", Payload: []byte("x"), Metadata: message.Metadata{"a": "1"}}))
	require.NoError(t, err)
	require.Equal(t, "id", plain.UUID)
	require.Equal(t, message.Metadata{"a": "1"}, plain.Metadata)

	// W13: to the stock one, what others have sent has no id at all.
	stock, err := kafka.DefaultMarshaler{}.Unmarshal(foreign)
	require.NoError(t, err)
	require.Empty(t, stock.UUID)
}

// row scans as a database does.
type row []any

func (r row) Scan(to ...any) error {
	for i, v := range r {
		switch p := to[i].(type) {
		case *int64:
			*p = v.(int64)
		case *[]byte:
			b, _ := v.([]byte)
			*p = b
		}
	}
	return nil
}

// W6b: to the stock schema, a row by somebody else ends the subscription.
func TestSQLRows(t *testing.T) {
	t.Parallel()
	odd := row{int64(3), int64(700), []byte("id"), []byte(nil), []byte(`{"n": 5, "list": [1, "x"], "none": null, "text": "t"}`)}
	_, err := wmsql.DefaultPostgreSQLSchema{}.UnmarshalMessage(odd)
	require.Error(t, err)
	r, err := pgSchema{}.UnmarshalMessage(odd)
	require.NoError(t, err)
	var d transport.Delivery
	readSQL(r.Msg, &d)
	require.Equal(t, map[string]string{"n": "5", "list": `[1, "x"]`, "none": "", "text": "t"}, d.Headers.Map())
	require.Nil(t, r.Msg.Payload)
	require.Equal(t, int64(3), d.Offset)

	for text, want := range map[string]map[string]string{"": {}, "null": {}, "[]": {rawHeader: "[]"}, "{": {rawHeader: "{"}} {
		r, err := mySchema{}.UnmarshalMessage(row{int64(4), []byte(""), []byte{}, []byte(text)})
		require.NoError(t, err)
		d := transport.Delivery{Topic: "orders"}
		readSQL(r.Msg, &d)
		require.Equal(t, want, d.Headers.Map())
		require.Equal(t, "orders/0/4", d.ID, "a row without an id has that of its place")
	}
}

func TestSQLMetadataSurvives(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("i", 40)
	for _, m := range []*message.Message{
		{UUID: "id", Metadata: message.Metadata{"a": "1", "ü": "漢"}},
		{UUID: long, Metadata: message.Metadata{"\xff": "\x00", "a": "1", binaryHeader: "x"}},
		{UUID: "\x00", Metadata: nil},
	} {
		q, err := pgSchema{}.InsertQuery("orders", message.Messages{m})
		require.NoError(t, err)
		require.LessOrEqual(t, len(q.Args[0].(string)), maxUUID)
		r, err := pgSchema{}.UnmarshalMessage(row{int64(1), int64(1), []byte(q.Args[0].(string)), q.Args[1], q.Args[2]})
		require.NoError(t, err)
		var d transport.Delivery
		readSQL(r.Msg, &d)
		require.Equal(t, m.UUID, r.Msg.UUID)
		require.Len(t, d.Headers, len(m.Metadata))
		for k, v := range m.Metadata {
			require.Equal(t, v, d.Headers.Get(k))
		}
	}
}

// W9: PostgreSQL cuts names at 63 bytes, so that the stock names of two topics
// are those of one table.
func TestTableNames(t *testing.T) {
	t.Parallel()
	const limit = 63
	one, two := strings.Repeat("x", 60)+"1", strings.Repeat("x", 60)+"2"
	stock := wmsql.DefaultPostgreSQLSchema{}
	require.Equal(t, stock.MessagesTable(one)[:limit], stock.MessagesTable(two)[:limit])
	seen := map[string]string{}
	for _, topic := range []string{"a", "offsets_a", "A", one, two, strings.Repeat("x", 45), strings.Repeat("x", 46), strings.Repeat("x", 53), strings.Repeat("x", 54), "offsets_" + one} {
		for _, prefix := range []string{messagesPrefix, offsetsPrefix} {
			name := table(prefix, topic, limit)
			require.LessOrEqual(t, len(name), limit)
			require.Empty(t, seen[name], "%s of %s", name, topic)
			seen[name] = topic
		}
	}
	require.Equal(t, "watermill_a", table(messagesPrefix, "a", limit), "as plain Watermill has it")
	require.Equal(t, "watermill_offsets_a", table(offsetsPrefix, "a", limit))
}
