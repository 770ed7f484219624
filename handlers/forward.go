package handlers

import (
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ForwardOptions are the options of the handler `forward`.
type ForwardOptions struct {
	// Topic is where messages go; default the consumer's publish_to.
	Topic string `yaml:"topic"`
}

// Forward is the handler `forward`: each message is sent on with its body, id,
// headers and key. With a Topic it needs the engine, as [Emit] does.
func Forward(o ForwardOptions) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		out := &message.Message{UUID: msg.UUID, Payload: msg.Payload, Metadata: maps.Clone(msg.Metadata)}
		if o.Topic == "" {
			return []*message.Message{out}, nil
		}
		return nil, Emit(msg.Context(), o.Topic, out)
	}
}
