package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// EmitOption adds to a message that [Emit] sends.
type EmitOption func(*message.Message)

// Key gives the message a key: messages of one key keep their order.
func Key(key string) EmitOption {
	return func(m *message.Message) { m.Metadata.Set(transport.KeyHeader, key) }
}

// Emit has v sent to topic if the handler returns nil, before its message is
// acked; nothing is sent by a run that fails. An empty topic is the
// consumer's publish_to.
//
// v is encoded as JSON, except []byte and json.RawMessage, which are the body,
// and *message.Message, which is sent as it is and must not be changed any
// more. A v that cannot be encoded is a permanent error.
//
// It needs the engine: under Watermill's own Router it fails with
// [transport.ErrUnsupported], and once the handler has returned with
// [transport.ErrClosed].
func Emit(ctx context.Context, topic string, v any, opts ...EmitOption) error {
	m, err := encode(v)
	if err != nil {
		return err
	}
	if m.Metadata == nil {
		m.Metadata = message.Metadata{}
	}
	for _, opt := range opts {
		opt(m)
	}
	err = transport.Emit(ctx, topic, m)
	switch {
	case errors.Is(err, transport.ErrUnsupported):
		return fmt.Errorf("emit to %q: the context belongs to no delivery: pass the handler's own, or return the message where Leat does not run it: %w", topic, err)
	case err != nil:
		return fmt.Errorf("emit to %q: the handler has returned: %w", topic, err)
	}
	return nil
}

// encode makes a message of v. Its id is random, for the engine to replace by
// one that is the same in each attempt.
func encode(v any) (*message.Message, error) {
	switch v := v.(type) {
	case *message.Message:
		if v == nil {
			return nil, Permanent(errors.New("output is a nil message"))
		}
		return v, nil
	case []byte:
		return message.NewMessage(watermill.NewUUID(), slices.Clone(v)), nil
	case json.RawMessage:
		return message.NewMessage(watermill.NewUUID(), message.Payload(slices.Clone(v))), nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		text := fmt.Sprintf("output %T cannot be JSON (%s)", v, transport.Class(err))
		return nil, &codecError{text: text, cause: err, reason: transport.ReasonPermanent}
	}
	return message.NewMessage(watermill.NewUUID(), body), nil
}
