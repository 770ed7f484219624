package handlers

import "github.com/ThreeDotsLabs/watermill/message"

// Discard is the handler `discard`: every message is handled, and nothing is done.
func Discard() message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, nil }
}
