package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

func TestEmit(t *testing.T) {
	t.Parallel()
	buffer := []byte("bytes")
	own := &message.Message{UUID: "mine", Payload: []byte("own")}
	kept := make(chan context.Context, 1)
	h := handlers.JSON(func(ctx context.Context, _ any) error {
		kept <- ctx
		err := errors.Join(
			handlers.Emit(ctx, "a", map[string]int{"n": 1}),
			handlers.Emit(ctx, "", buffer, handlers.Key("k2")),
			handlers.Emit(ctx, "b", json.RawMessage(`{"raw": 1}`)),
			handlers.Emit(ctx, "b", own, handlers.Key("k3")),
			handlers.Emit(ctx, "b", nil),
		)
		copy(buffer, "XXXXX") // the caller has its buffer back
		return err
	})
	_, outputs, err := run(t, h, []byte(`1`))
	require.NoError(t, err)
	type sent struct{ topic, body, key string }
	got := make([]sent, len(outputs))
	for i, o := range outputs {
		got[i] = sent{o.Topic, string(o.Message.Payload), o.Message.Metadata.Get(transport.KeyHeader)}
		require.NotEmpty(t, o.Message.UUID)
	}
	require.Equal(t, []sent{{"a", `{"n":1}`, ""}, {"", "bytes", "k2"}, {"b", `{"raw": 1}`, ""}, {"b", "own", "k3"}, {"b", "null", ""}}, got)
	require.Same(t, own, outputs[3].Message)

	err = handlers.Emit(<-kept, "late", 1)
	require.ErrorIs(t, err, transport.ErrClosed)
	require.ErrorContains(t, err, `emit to "late": the handler has returned`)
}

func TestEmitRefuses(t *testing.T) {
	t.Parallel()
	ctx := attempt(t, nil).Message().Context()
	for _, v := range []any{make(chan int), (*message.Message)(nil)} {
		require.Equal(t, transport.ActionDead, decide(t, handlers.Emit(ctx, "a", v)).Action)
	}
	err := handlers.Emit(t.Context(), "a", 1)
	require.ErrorIs(t, err, transport.ErrUnsupported)
	require.ErrorContains(t, err, `emit to "a": the context belongs to no delivery`)
}

func TestDeliveryFrom(t *testing.T) {
	t.Parallel()
	d, ok := handlers.DeliveryFrom(attempt(t, nil).Message().Context())
	require.True(t, ok)
	require.Equal(t, handlers.Delivery{
		ID: "id-1", Topic: "orders", Partition: 2, Offset: 7, Key: "k", Attempt: 3,
		FirstFailure: time.Unix(2, 0), Enqueued: time.Unix(1, 0), Consumer: "charge", Group: "payments.charge",
	}, d)
	_, ok = handlers.DeliveryFrom(t.Context())
	require.False(t, ok)
}
