package handlers

import (
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// LogOptions are the options of the handler `log`.
type LogOptions struct {
	// Payload logs the body too, up to 4 KiB of it; default false.
	Payload bool `yaml:"payload"`
}

const maxLoggedPayload = 4 << 10

// Log is the handler `log`: one line for each message, with its id, size and
// coordinates, and then it is handled.
func Log(o LogOptions, log *slog.Logger) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		attrs := []slog.Attr{
			slog.String("id", msg.UUID),
			slog.String("key", msg.Metadata.Get(transport.KeyHeader)),
			slog.Int("size", len(msg.Payload)),
		}
		if d, ok := DeliveryFrom(msg.Context()); ok {
			attrs = append(
				attrs,
				slog.String("topic", d.Topic),
				slog.Int("partition", int(d.Partition)),
				slog.Int64("offset", d.Offset),
				slog.Int("attempt", d.Attempt),
			)
		}
		if o.Payload {
			attrs = append(attrs, slog.String("payload", string(msg.Payload[:min(len(msg.Payload), maxLoggedPayload)])))
		}
		log.LogAttrs(msg.Context(), slog.LevelInfo, "message", attrs...)
		return nil, nil
	}
}
