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

	// Lacks says why a hook of [Broker] is missing, by the name of its field.
	Lacks map[string]string

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
	// Short has fewer messages in the cases that have many. [Run] sets it
	// from testing.Short.
	Short bool
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

	// Restart stops the broker and starts it again. Open consumers may fail.
	Restart func(tb TB)

	// Foreign puts messages into a topic that has this one group, as other
	// programs do: without ids, with headers and payloads of every kind that
	// the broker can hold. It returns how many it was.
	Foreign func(tb TB, topic, group string) int

	// PublishLater writes messages in a transaction that has its place in the
	// order of the topic, but commits only when commit is called.
	PublishLater func(tb TB, topic string, msgs ...*message.Message) (commit func())
}

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
