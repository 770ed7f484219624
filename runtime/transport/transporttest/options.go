package transporttest

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Options is the transport under test. Only Open is required.
type Options struct {
	// Open starts a broker for one case. It may also give one that all cases
	// share: no two of them use the same topic or group. Topics must have two
	// partitions or more where [transport.Capabilities.KeyOrder] is the group.
	Open func(tb TB) Broker

	// Lacks says why a hook of [Broker] is missing, by the name of its field;
	// "*" says it of all others.
	Lacks map[string]string

	// Merges are characters that the broker takes for each other in names of
	// topics: it refuses the second of two topics that differ in them alone.
	Merges string

	// Takeover is how long the broker may take to give what a killed member
	// held to another; default 10s.
	Takeover time.Duration
	// Patience is how long the suite waits for what must happen, beyond
	// Takeover where that is at work; default 30s.
	Patience time.Duration
	// Quiet is how long nothing may come where nothing must; default 200ms.
	Quiet time.Duration
	// Parallel is how many cases run at once; default 4.
	Parallel int
	// OnlyAlone leaves out the cases that may run beside others: for a second
	// run, on a broker of its own, with the hooks that hurt it.
	OnlyAlone bool
	// Short has fewer messages and rounds in the cases that have many, and
	// Soak more of them. [Run] sets them from testing.Short and from LEAT_SOAK,
	// if that is not empty; Soak wins.
	Short, Soak bool
}

// Broker is one broker, as its own tests present it. What is nil is not
// tested; [Options.Lacks] says why.
type Broker struct {
	// Transport connects to the broker as a further worker process does. The
	// suite closes it. Required.
	Transport func(tb TB) transport.Transport

	// Kill leaves a consumer as a killed or frozen process leaves it: nothing
	// of it runs any more, and the broker is not told. The suite does not
	// close it, but may call Settle, as a process does that wakes up again.
	Kill func(tb TB, c transport.Consumer, cfg transport.ConsumerConfig)

	// Restart stops the broker cleanly and starts it again. Open consumers may
	// fail. Cases with this hook, and with Crash, Freeze, Deny, Jump or
	// Disconnect, run alone, after all others: no other test may use the broker.
	Restart func(tb TB)

	// Crash kills the broker and starts it again with what it has on disk.
	Crash func(tb TB)

	// Freeze stops the broker where it is, with its connections open, until
	// thaw is called. It may be called again.
	Freeze func(tb TB) (thaw func())

	// Deny has the broker refuse the transports' credentials, and end what is
	// connected with them, until allow is called.
	Deny func(tb TB) (allow func())

	// Jump moves the broker's clock by d, as the transports see it.
	Jump func(tb TB, d time.Duration)

	// Disconnect ends all connections at once, as an administrator does. They
	// may be made again.
	Disconnect func(tb TB)

	// Link is what all of this Broker's transports go through.
	Link Link

	// Oversize is the size of a payload that the broker does not take, and
	// that fits into memory.
	Oversize int

	// Idle is after how long the broker ends a connection that is not used.
	Idle time.Duration

	// Foreign puts messages into a topic that has this one group, as other
	// programs do: without ids, with headers and payloads of every kind that
	// the broker can hold. It returns how many it was.
	Foreign func(tb TB, topic, group string) int

	// PublishLater writes messages in a transaction that has its place in the
	// order of the topic, but commits only when commit is called.
	PublishLater func(tb TB, topic string, msgs ...*message.Message) (commit func())
}

// Link is a network that fails on demand: TCP through a proxy, or what comes
// near it. A case has its own.
type Link interface {
	// Cut resets all connections and refuses new ones, until Heal.
	Cut()
	Heal()
	// Stall keeps connections and lets nothing through, until Resume: no byte,
	// no end, no reset. Then what was sent arrives.
	Stall()
	Resume()
	// LimitThenReset lets n more bytes through in a direction, and then resets
	// all connections, once.
	LimitThenReset(dir Direction, n int)
	// Latency delays what is sent from now on, in each direction.
	Latency(d time.Duration)
}

// Direction is one of the two ways through a [Link].
type Direction int

// What transports send, and what they are sent.
const (
	ToBroker Direction = iota
	ToClient
)

// TB is what cases and hooks use of a test. [*testing.T] is one.
type TB interface {
	Helper()
	Name() string
	Context() context.Context
	TempDir() string
	Cleanup(fn func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	FailNow()
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Takeover, 10*time.Second)
	def(&o.Patience, 30*time.Second)
	def(&o.Quiet, 200*time.Millisecond)
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	return o
}
