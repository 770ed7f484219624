package main

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"

	"github.com/leat-io/leat/benchmarks/harness"
)

func messageGroup() harness.Group {
	return harness.Group{
		ID: "message", Name: "making a message", Unit: "msg", N: 1_000_000,
		Cases: []harness.Case{
			{Name: "message.NewMessage", Run: loop(func() { harness.Sink = message.NewMessage("id", payload) })},
			{Name: "literal", Run: loop(func() { harness.Sink = &message.Message{UUID: "id", Payload: payload} })},
			{Name: "as an attempt has it: metadata and payload copied", Run: loop(func() { harness.Sink = copied(0) })},
			{Name: "the same, 3 headers", Run: loop(func() { harness.Sink = copied(3) })},
		},
	}
}

func timeoutGroup() harness.Group {
	msg := message.NewMessage("id", payload)
	h := middleware.Timeout(timeout)(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	asked := middleware.Timeout(timeout)(func(msg *message.Message) ([]*message.Message, error) {
		harness.Sink = msg.Context().Done()
		return nil, nil
	})
	return harness.Group{
		ID: "timeout", Name: "a timeout that does not come", Unit: "call", N: 1_000_000,
		Cases: []harness.Case{
			{Name: "context.WithTimeout", Run: loop(func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				harness.Sink = ctx
				cancel()
			})},
			{Name: "middleware.Timeout", Run: loop(func() { _, _ = h(msg) })},
			{Name: "middleware.Timeout, handler asks for Done", Run: loop(func() { _, _ = asked(msg) })},
		},
	}
}

func loop(fn func()) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		m.Start()
		for range n {
			fn()
		}
		m.Stop()
		return nil
	}
}

// copied is a message that shares nothing with what was received.
func copied(headers int) *message.Message {
	h := received[headers]
	return &message.Message{UUID: "id", Payload: append(make(message.Payload, 0, len(payload)), payload...), Metadata: h.Map()}
}

// makeMessage makes of a delivery what a handler gets: a message that shares
// neither payload nor metadata with it.
func makeMessage(d *transport.Delivery) {
	harness.Sink = &message.Message{
		UUID: d.ID, Payload: append(make(message.Payload, 0, len(d.Payload)), d.Payload...), Metadata: d.Headers.Map(),
	}
}

var received = map[int]transport.Headers{0: headersOf(0), 3: headersOf(3)}

func headersOf(n int) transport.Headers { return transport.HeadersOf(newMessage(0, n).Metadata) }

// own is how many allocations a message with its payload and metadata is.
func own(headers int) float64 {
	return testing.AllocsPerRun(100, func() { harness.Sink = copied(headers) })
}
