package memory

import (
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Options shape a [Broker]. The zero value is a broker with queues.
type Options struct {
	// Partitions is how many each topic has; default 4. Messages of one key
	// share one, those without a key take turns.
	Partitions int `yaml:"partitions"`
	// MaxMessages bounds what a topic holds; default 1048576. Beyond it a
	// publish fails and is worth trying again, as groups settle.
	MaxMessages int `yaml:"max_messages"`
	// Retain is how many messages each partition keeps, for groups that begin
	// later, after every group has settled them; default 16384, -1 for none.
	// Messages of a topic without a group are all kept.
	Retain int `yaml:"retain"`
	// RebalanceDrain is how long a partition that moves to another member
	// waits for what is running; default 5s.
	RebalanceDrain time.Duration `yaml:"rebalance_drain"`

	// Log makes a group's position in a partition one contiguous mark, as
	// Kafka has it: what was acked ahead of the mark is delivered again when
	// a member is lost, and kept when one closes.
	Log bool `yaml:"-"`
	// Capabilities emulates a broker that can do less; nil means
	// [Capabilities]. The broker then behaves so:
	//   - KeyOrder worker: topics have one partition, that all members of a
	//     group take from at once.
	//   - Attempts after a delay: Record is dropped; process: counts are.
	//   - no StableCoordinates: Offset is a delivery tag, Session counts connections.
	//   - no ByteWindow: Receive ignores maxBytes.
	//   - no DurableDelay, no Depth: these fail with [transport.ErrUnsupported].
	Capabilities *transport.Capabilities `yaml:"-"`
}

// Capabilities is what the broker can do by itself. Counts of attempts are
// durable in that they live and die with the messages they belong to.
func Capabilities() transport.Capabilities {
	return transport.Capabilities{
		KeyOrder:          transport.ScopeGroup,
		Attempts:          transport.KeepDurable,
		DurableDelay:      true,
		StableCoordinates: true,
		ReleaseInOrder:    true,
		ByteWindow:        true,
		History:           true,
		Depth:             true,
		Browse:            transport.BrowseNone,
		MaxNameLength:     transport.MaxName,
	}
}

func (o Options) withDefaults() Options {
	if o.Partitions <= 0 {
		o.Partitions = 4
	}
	if o.MaxMessages <= 0 {
		o.MaxMessages = 1 << 20
	}
	switch {
	case o.Retain == 0:
		o.Retain = 1 << 14
	case o.Retain < 0:
		o.Retain = 0
	}
	if o.RebalanceDrain <= 0 {
		o.RebalanceDrain = 5 * time.Second
	}
	if o.Capabilities == nil {
		c := Capabilities()
		o.Capabilities = &c
	}
	if o.Capabilities.KeyOrder == transport.ScopeWorker {
		o.Partitions = 1
	}
	return o
}
