package transport

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Policy is how one consumer runs: what the engine keeps to, and the links of
// its chain. Zero fields have the defaults named; [Policy.Defaults] fills them.
type Policy struct {
	Topics []string // further topics of the same group
	Group  string   // default: the consumer's name
	Start  Start    // default earliest

	Concurrency   int   // handlers running at once; default 8
	Prefetch      int   // deliveries held at most; default 8 × Concurrency
	PrefetchBytes int64 // bytes of them; default 16 MiB
	Span          int   // settled but not yet tellable, for each assignment; default 1<<20

	// Order is the order kept; default [Capabilities.DefaultOrder].
	Order Order
	// OrderKey, with [OrderKey], gives lanes by something else than the
	// message key, inside one partition. nil: the message key.
	OrderKey func(*Delivery) string

	Retry *RetryPolicy // default: NewRetryPolicy(Backoff{})
	// RetryOrder says whether a waiting message holds up what is ordered
	// behind it; default keep where there is an order, else overtake.
	RetryOrder RetryOrder
	// MaxPark is the longest wait that is kept in memory where RetryOrder is
	// overtake and the broker can delay; default 10s.
	MaxPark time.Duration

	DeadLetter   DeadLetter // default: a topic named by [DeadTopic]
	AckOnReceive bool       // ack before the handler: at most once

	// PublishTo is the topic of messages the handler returns.
	PublishTo string
	// Output publishes outputs; nil: the consumer's own transport. Dead
	// letters always stay with the consumer's own.
	Output Transport

	// Wrap, Dedup, Timeout and Use are the links that middleware.Default puts
	// at their places; the engine itself reads only Middleware.
	Wrap    []message.HandlerMiddleware
	Dedup   message.HandlerMiddleware
	Timeout time.Duration // of one attempt; 0: none
	Use     []message.HandlerMiddleware

	// Middleware is the whole chain, outermost first.
	Middleware []message.HandlerMiddleware
}

// RetryOrder says what a message that waits for its next attempt does to
// later ones of its order.
type RetryOrder string

// Values of RetryOrder.
const (
	RetryKeep     RetryOrder = "keep"     // they wait behind it
	RetryOvertake RetryOrder = "overtake" // they go on; exclusion with them is given up
)

// DeadLetter is what becomes of a message that has failed for good.
type DeadLetter struct {
	Mode  DeadMode // default DeadToTopic
	Topic string   // of DeadToTopic; `{topic}` and `{group}` are replaced
}

// DeadMode is the kind of a [DeadLetter].
type DeadMode string

// Values of DeadMode.
const (
	DeadToTopic DeadMode = "topic" // publish a copy, confirmed, then ack
	DeadDrop    DeadMode = "drop"  // ack
	DeadBlock   DeadMode = "block" // try for ever at the policy's MaxInterval, in place
)

// Defaults fills what is zero, for a consumer of that name on a transport
// that can c.
func (p Policy) Defaults(name string, c Capabilities) Policy {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if p.Group == "" {
		p.Group = name
	}
	if p.Start == "" {
		p.Start = StartEarliest
	}
	def(&p.Concurrency, 8)
	def(&p.Prefetch, 8*p.Concurrency)
	def(&p.Span, 1<<20)
	if p.PrefetchBytes == 0 {
		p.PrefetchBytes = 16 << 20
	}
	if p.Order == "" {
		p.Order = c.DefaultOrder()
	}
	if p.Retry == nil {
		p.Retry, _ = NewRetryPolicy(Backoff{})
	}
	if p.RetryOrder == "" {
		p.RetryOrder = RetryKeep
		if p.Order == OrderNone {
			p.RetryOrder = RetryOvertake
		}
	}
	if p.MaxPark == 0 {
		p.MaxPark = 10 * time.Second
	}
	if p.DeadLetter.Mode == "" {
		p.DeadLetter.Mode = DeadToTopic
	}
	if p.DeadLetter.Mode == DeadToTopic && p.DeadLetter.Topic == "" {
		p.DeadLetter.Topic = DefaultDeadTopic
	}
	return p
}
