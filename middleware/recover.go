package middleware

import (
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Recover turns a panic of what it wraps into a [*transport.Panicked] with the
// stack, which is then an error like any other: tried again, and dead-lettered
// when attempts are used up. A panic with an error that is permanent is so too.
//
// It does not see [runtime.Goexit], which ends the goroutine for good: the
// engine guards against that beneath the chain, Watermill's Router does not
// and leaves the message unsettled. Nor does it see a panic in a goroutine
// that the handler started; nothing can stop that from ending the process.
func Recover() message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (out []*message.Message, err error) {
			defer func() {
				if r := recover(); r != nil {
					out, err = nil, &transport.Panicked{Value: r, Stack: debug.Stack()}
				}
			}()
			return next(msg)
		}
	}
}
