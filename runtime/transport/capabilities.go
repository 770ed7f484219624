package transport

import "time"

// Capabilities is what a broker can do, as configured. Everything that differs
// between brokers is a field here: lint, docs, `list transports` and the
// conformance suites read this and nothing else.
type Capabilities struct {
	// KeyOrder is how far the order of a key reaches: over all instances of a
	// group, or only within one.
	KeyOrder Scope
	// Attempts is where the count of failed attempts of a message lives.
	Attempts Keeping
	// DurableDelay: a delivery can be given back to become due later.
	DurableDelay bool
	// StableCoordinates: topic, partition and offset name the same message in
	// every delivery of it. Else a redelivery is known by its id and body.
	StableCoordinates bool
	// ReleaseInOrder: single deliveries can be given back while others of
	// their assignment are kept, and come again in order.
	ReleaseInOrder bool
	// ByteWindow: the broker hands out no more bytes than asked for. Else the
	// bound on memory is prefetch times the largest message.
	ByteWindow bool
	// InFlight is how many deliveries of a topic one instance is handed before
	// it has settled some, where the broker's client bounds that; 0: the credit
	// alone does. What is so few is told at once and not in batches.
	InFlight int
	// History: a group that is declared later can begin with what was
	// published before.
	History bool
	// Depth: [Transport.Depth] works.
	Depth bool
	// Browse says whether messages can be looked at, and how.
	Browse Browse
	// Transactions: a message can be published, and a delivery settled, in a
	// transaction of the handler's own.
	Transactions bool
	// Replay: a group can be set back to what it has had before.
	Replay bool
	// Networked: the broker is another process, that others can reach.
	Networked bool
	// Durable: messages outlive the process.
	Durable bool
	// SQL: dedup keys can live in the broker itself.
	SQL bool
	// MaxNameLength bounds topic and group names, in bytes.
	MaxNameLength int
	// DerivesNames: names of the broker's own are made of a topic and a group,
	// joined by "--", which neither may then contain.
	DerivesNames bool
	// GroupTool lists the groups at the broker itself, where the transport is no
	// [GroupAdmin].
	GroupTool string
	// NeedsReader: a publish fails to a topic that no group reads.
	NeedsReader bool
	// AckTimeout is for how long a delivery may be held; then the broker takes
	// it back. 0: for ever.
	AckTimeout time.Duration
}

// Scope is how far an order reaches.
type Scope string

// Values of Scope.
const (
	ScopeGroup  Scope = "group"  // over all instances of the group
	ScopeWorker Scope = "worker" // within one instance
)

// Keeping is where something is remembered.
type Keeping string

// Values of Keeping.
const (
	KeepDurable    Keeping = "durable"       // survives a crash at any time
	KeepAfterDelay Keeping = "after a delay" // survives once the delivery was given back with a delay
	KeepProcess    Keeping = "process"       // forgotten when the process ends
)

// Browse says how messages can be looked at.
type Browse string

// Values of Browse.
const (
	BrowseNone  Browse = "none"
	BrowseReads Browse = "reads"                     // without touching them
	BrowseTakes Browse = "takes and puts back again" // so that they change their place
)

// DefaultOrder is the order a consumer has that asks for none by name: by key
// where the broker keeps that over all instances, else none.
func (c Capabilities) DefaultOrder() Order {
	if c.KeyOrder == ScopeGroup {
		return OrderKey
	}
	return OrderNone
}
