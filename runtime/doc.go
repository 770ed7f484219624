// Package runtime is the engine: it pulls deliveries from transports, runs a
// chain of middleware and a handler over each, and tells the broker what
// became of them.
//
// A [Router] holds consumers. Each consumer has one pull loop, a credit in
// messages and bytes, lanes that keep order, a pool of lazily woken workers,
// and one place where settlements are batched. One consumer's trouble never
// stops another.
//
// The Go runtime is another package; where both are needed, the standard one
// is imported as goruntime.
package runtime
