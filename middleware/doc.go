// Package middleware holds the links that stand between a broker and a
// handler: each is a plain [message.HandlerMiddleware], in a file of its own.
//
// [Default] puts them in the one order in which they keep their promises,
// outermost first:
//
//	wrap          the user's outer links: decrypt, unpack, before any key is read
//	dead letter   DeadLetter   takes what has failed for good
//	dedup         Dedup        lets a message through that was not done before
//	retry         Retry        says when a failed message is tried again
//	timeout       Timeout      bounds one attempt
//	recover       Recover      turns a panic into an error
//	use           the user's inner links
//	handler
//
// # Two worlds
//
// Under the runtime's engine the context of a message holds a
// [transport.Attempt]. The links then only ask and register, and hold nothing
// while time runs: Retry returns a [*transport.Wait] at once, DeadLetter marks
// the message, Dedup leaves a hook that learns what the run came to.
//
// Under Watermill's own Router there is no attempt. Each link then does its
// work in place: Retry waits and runs the handler again, DeadLetter publishes
// before the message is acked, Dedup marks after the handler has succeeded.
// Router.AddMiddleware takes them in the same order, outermost first.
//
// Dedup keeps its keys in a [DedupStore]: [MemoryDedup], within the process, or
// the one of package dedupsql, in a database.
//
// A [*transport.Wait], and the error of a run that was cut short by shutdown
// or revocation, pass through every link untouched: neither is a failure.
package middleware
