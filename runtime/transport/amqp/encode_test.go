package amqp_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

const anywhere = "amqp://h"

// TestHeaderTypesSurvive: what others have sent is what a dead letter, a
// replay or an output has.
func TestHeaderTypesSurvive(t *testing.T) {
	t.Parallel()
	tr := open(t, anywhere)
	in := amqp091.Delivery{
		Headers: everyType(), Body: []byte("x"), MessageId: "id", ContentType: "text/plain", CorrelationId: "c",
		ReplyTo: "r", Type: "t", AppId: "a", UserId: "u", Expiration: "5", Priority: 4, ContentEncoding: "gzip",
	}
	d := amqp.Decode(in)
	require.Equal(t, "id", d.ID)
	dead := transport.DeadMessage(d.ID, d.Payload, d.Headers.Map(), transport.DeadInfo{Reason: "r", Topic: "t"})
	pub, err := amqp.Encode(tr, dead, 1<<17)
	require.NoError(t, err)
	for name, v := range everyType() {
		if name != "x-delivery-count" { // the broker's own
			require.Equal(t, v, pub.Headers[name], name)
		}
	}
	require.Equal(t, "text/plain gzip c r t a 4 id", strings.Join([]string{
		pub.ContentType, pub.ContentEncoding, pub.CorrelationId, pub.ReplyTo, pub.Type, pub.AppId, string('0' + rune(pub.Priority)), pub.MessageId,
	}, " "))
	require.Empty(t, pub.Expiration, "a dead letter does not expire")
	require.Empty(t, pub.UserId, "the broker takes only its own user's")

	again := amqp.Decode(amqp091.Delivery{
		Headers: pub.Headers, Body: pub.Body, MessageId: pub.MessageId, ContentType: pub.ContentType, CorrelationId: pub.CorrelationId,
		ReplyTo: pub.ReplyTo, Type: pub.Type, AppId: pub.AppId, Priority: pub.Priority, ContentEncoding: pub.ContentEncoding,
	})
	for _, h := range d.Headers {
		require.Equal(t, h.Value, again.Headers.Get(h.Name), h.Name)
	}

	changed := &message.Message{UUID: "o", Payload: []byte("y"), Metadata: d.Headers.Map()}
	changed.Metadata["int32"] = "8"
	pub, err = amqp.Encode(tr, changed, 0)
	require.NoError(t, err)
	require.Equal(t, "8", pub.Headers["int32"], "what a handler has changed is what it says")
	require.Equal(t, int16(-300), pub.Headers["int16"])
}

func TestIDs(t *testing.T) {
	t.Parallel()
	uuid := func(v any) amqp091.Table { return amqp091.Table{"_watermill_message_uuid": v} }
	for want, in := range map[string]amqp091.Delivery{
		"u":    {Headers: uuid("u"), MessageId: "m"},
		"m":    {Headers: uuid(int32(1)), MessageId: "m"},
		"":     {Headers: amqp091.Table{"cloudEvents:id": "1"}},
		"/s#1": {Headers: amqp091.Table{"cloudEvents_id": "1", "cloudEvents_source": "/s"}},
	} {
		require.Equal(t, want, amqp.Decode(in).ID)
	}
	require.Equal(t, "m", amqp.Decode(amqp091.Delivery{Headers: uuid("u"), MessageId: "m"}).Headers.Get("amqp_message_id"))
}

// TestHeaderBudget: what Leat adds gives way, what others have put there does not.
func TestHeaderBudget(t *testing.T) {
	t.Parallel()
	tr := open(t, anywhere)
	const frame = 128 << 10
	headers := map[string]string{"theirs": strings.Repeat("x", frame-6000)}
	stack := &transport.Panicked{Value: "boom", Stack: []byte(strings.Repeat("s", 4000))}
	dead := transport.DeadMessage("id", []byte("b"), headers, transport.DeadInfo{Reason: "r", Err: stack, Topic: "t", Group: "g"})
	pub, err := amqp.Encode(tr, dead, frame)
	require.NoError(t, err)
	require.Equal(t, headers["theirs"], pub.Headers["theirs"])
	require.NotContains(t, pub.Headers, transport.DeadStackHeader)
	require.Equal(t, "r", pub.Headers[transport.DeadReasonHeader])

	_, err = amqp.Encode(tr, &message.Message{Metadata: message.Metadata{"theirs": strings.Repeat("x", 200<<10)}}, frame)
	require.ErrorContains(t, err, "fit into a frame")
	_, err = amqp.Encode(tr, &message.Message{Metadata: message.Metadata{strings.Repeat("n", 256): "v"}}, frame)
	require.ErrorContains(t, err, "256 bytes, at most 255")
	_, err = amqp.Encode(tr, &message.Message{Payload: make([]byte, 17<<20)}, frame)
	require.ErrorContains(t, err, "max_message")
}
