// Package transport is the contract between the engine and a broker, and the
// words that both share with middleware and handlers: the [Delivery] and its
// [Attempt], outputs ([Emit]), settlement hooks ([OnSettle]), the [Wait]
// request, the retry policy and its one decision ([RetryPolicy.Decide]).
//
// It knows no broker and no engine. A transport implements [Transport],
// [Consumer] and [Producer] and declares in [Capabilities] what it cannot do;
// a promise is never a capability.
package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Transport is one configured broker. All methods are safe for concurrent use.
//
// An error that the broker will go on giving (a wrong password, a mismatch, a
// denied right) is marked with [Refuse]; any other error is taken for an
// outage and tried again with backoff.
type Transport interface {
	// Kind is the name of the broker in YAML and in attributes: "sqlite", "kafka".
	Kind() string

	// Capabilities says what this broker can do, as configured. It needs no connection.
	Capabilities() Capabilities

	// Declare makes sure of topics and groups before anything is taken from
	// the broker. Under [TopologyDeclare] it creates what is missing and never
	// changes what is there, under [TopologyVerify] it only checks, under
	// [TopologyOff] it does nothing. It is idempotent and may race with the
	// same call in another process.
	Declare(ctx context.Context, mode Topology, ds ...Declaration) error

	// OpenConsumer joins a group. ctx bounds only the opening; the contexts of
	// deliveries derive from c.Base.
	OpenConsumer(ctx context.Context, c ConsumerConfig) (Consumer, error)

	// OpenProducer opens a publisher that many goroutines may share.
	OpenProducer(ctx context.Context) (Producer, error)

	// Depth counts what waits in one group of a topic. Transports without
	// [Capabilities.Depth] return [ErrUnsupported].
	Depth(ctx context.Context, topic, group string) (Depth, error)

	// Close gives up connections. Consumers and producers are closed before.
	Close(ctx context.Context) error
}

// Consumer is one member of one group.
//
// Receive is called by one goroutine, Settle by another; Pause and Resume by
// any. A consumer is used until Receive fails, then closed and opened anew.
type Consumer interface {
	// Receive waits for deliveries and returns at least one, at most limit,
	// in broker order within each [Assignment].
	//
	// The sum of their sizes is at most maxBytes. If the next message is
	// larger than that, what fits before it is returned; if nothing does,
	// the error is a [NeedBytes] and the engine comes again with that much.
	//
	// Deliveries may share one allocation only where they are small: one that
	// stays unsettled for long keeps alive what it was allocated with.
	//
	// A Receive that is waiting when ctx ends returns ctx's error, and the
	// consumer stays usable. Any other error means that the connection or the
	// group membership is gone: the engine drops what has not started and
	// opens a new consumer.
	Receive(ctx context.Context, limit int, maxBytes int64) ([]*Delivery, error)

	// Pause makes Receive return nothing more of a, while membership and the
	// other assignments go on; Resume ends that. Both return at once and are
	// idempotent. A Receive under way may still return what it has taken.
	Pause(a *Assignment)
	Resume(a *Assignment)

	// Settle tells the broker what became of deliveries, in any order. nil
	// means that all of it is told, or no longer ours to tell (settlements of
	// a revoked assignment are dropped and change nothing). After an error
	// the same batch is given again for as long as Receive goes on. The first
	// verdict on a delivery stands: what is settled already changes nothing.
	Settle(ctx context.Context, batch []Settlement) error

	// Close releases what is not settled, untouched and with no attempt
	// spent, and leaves the group. It returns by the end of ctx at the latest.
	Close(ctx context.Context) error
}

// Partial is a [Consumer] that may have to leave out a part of what it should
// read, such as a partition that nobody leads, while it reads the rest.
type Partial interface {
	// LeftOut says what is left out and why, and since when; empty if nothing
	// is. It is asked whenever somebody looks at the status, and must not wait.
	LeftOut() (why string, since time.Time)
}

// Producer publishes. All methods are safe for concurrent use.
type Producer interface {
	// Publish returns nil when the broker has confirmed every message. Else
	// the error is a [*PublishError] that says which failed, or any other
	// error where nothing is known of any of them: publishing the same
	// messages again is then right. The record key is the metadata [KeyHeader].
	Publish(ctx context.Context, topic string, msgs ...*message.Message) error

	Close(ctx context.Context) error
}

// ConsumerConfig says what a consumer reads and how much of it may be held.
type ConsumerConfig struct {
	Name     string   // the consumer's name in the file, for logs
	Topics   []string // one or more
	Group    string
	Start    Start
	Topology Topology
	Order    Order // which order the engine will keep
	Instance Instance

	Prefetch      int   // the largest limit Receive is ever called with
	PrefetchBytes int64 // likewise maxBytes, but for a [NeedBytes]
	// Span bounds, for each assignment, what is settled but cannot be told to
	// the broker yet because an earlier delivery is not. Receive returns
	// nothing more of an assignment that has reached it.
	Span int

	// Base is the parent of every [Assignment]'s context. The engine cancels
	// it with cause [ErrShutdown] when a drain has run out of time.
	Base context.Context //nolint:containedctx // handed through to the contexts of deliveries

	Log *slog.Logger
}

// Instance names one worker process. Only a Set one may be used to take back
// at once what an earlier process of that name held.
type Instance struct {
	ID  string
	Set bool
}

// Declaration is a topic, and a group of it where Group is not empty.
type Declaration struct {
	Topic string
	Group string
	Start Start // where the group begins if it has no position yet
	// DeadLetter marks a topic that keeps what it gets until somebody takes
	// it, whether or not a group reads it.
	DeadLetter bool
}

// Depth is what waits for one group, at one moment.
type Depth struct {
	Ready   int64     // could be handed out now; with what is held, where Held is not known
	Delayed int64     // waits for its time
	Held    int64     // handed out and not settled, by any instance; 0 where unknown
	Oldest  time.Time // when the oldest of them was published; zero if none or unknown
}

// Start says where a group begins that has no position.
type Start string

// Values of Start.
const (
	StartEarliest Start = "earliest" // everything the broker still has; the default
	StartLatest   Start = "latest"   // what is published from now on
)

// Topology says what a worker may do to topics, groups and queues.
type Topology string

// Values of Topology.
const (
	TopologyDeclare Topology = "declare" // create what is missing, change nothing; the default
	TopologyVerify  Topology = "verify"  // only check
	TopologyOff     Topology = "off"     // trust
)

// Order says which deliveries must not overtake each other.
type Order string

// Values of Order.
const (
	OrderKey       Order = "key"       // one at a time for each message key
	OrderPartition Order = "partition" // one at a time for each partition or queue
	OrderNone      Order = "none"      // any free slot
)
