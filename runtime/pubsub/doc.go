// Package pubsub gives a transport to Watermill: a [Publisher] and a
// [Subscriber] for any program that has a Router of its own.
//
//	pub := pubsub.NewPublisher(t)
//	sub := pubsub.NewSubscriber(t, "payments.charge")
//	router.AddHandler("charge", "orders.placed", sub, "payments.charged", pub, charge)
//
// Behind each subscription is a consumer of the engine: its lanes let many
// messages be in flight where their order allows it, and what is nacked waits
// there, holding nothing but its place. Middleware of package middleware finds
// no attempt in such a message and does its work in place.
package pubsub
