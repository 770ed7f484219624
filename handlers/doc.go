// Package handlers is what the author of a handler imports: typed handlers
// ([JSON], [JSONOut]), errors that say what is to become of a message
// ([Permanent], [RetryAfter], [Skip]), messages to send if the handler
// succeeds ([Emit]) and what is known of the delivery ([DeliveryFrom]).
//
// It also has the handlers that a worker's file can use without any Go code:
// [Log], [Discard] and [Forward].
//
// A handler need not import it: any Watermill message.HandlerFunc runs, and
// any error with a method Permanent() bool, Skip() bool or
// RetryAfter() time.Duration is understood.
package handlers
