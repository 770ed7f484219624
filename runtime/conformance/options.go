package conformance

import (
	"time"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// TB is what cases and hooks use of a test. [*testing.T] is one.
type TB = transporttest.TB

// Result is what came of one case.
type Result = transporttest.Result

// Report has a result for each case that was asked for, in the suite's order.
type Report = transporttest.Report

// Options is the transport under test. Only Open is required.
type Options struct {
	// Open starts a broker for one case. It may also give one that all cases
	// share: no two of them use the same topic or group. Topics must have two
	// partitions or more where [transport.Capabilities.KeyOrder] is the group.
	Open func(tb TB) Broker

	// Worker is the main package of a worker that links the transport, as
	// `go build` takes it; see package probe. Without it, and without
	// Broker.Config, no process is started.
	Worker string

	// Lacks says why Worker, or a field of Broker, is missing, by its name; "*"
	// says it of all others but Worker and Config. A durable broker that is tried
	// without processes has to say why.
	Lacks map[string]string

	// Takeover is how long the broker may take to give what a killed member
	// held to another; default 10s. One case blocks all handlers for three times that.
	Takeover time.Duration
	// Patience is how long the suite waits for what must happen, beyond
	// Takeover where that is at work; default 60s.
	Patience time.Duration
	// Quiet is how long nothing may come where nothing must; default 200ms.
	Quiet time.Duration
	// Parallel is how many cases run at once; default 4.
	Parallel int
	// Async: the broker may forget acks that it took, when a link breaks or a
	// process dies, as one that is told only a mark below which all is done.
	Async bool
	// InFlight is how many messages of a topic one worker can handle at once,
	// where the broker bounds that; default: any number.
	InFlight int
	// OnlyAlone leaves out the cases that may run beside others: for a second
	// run, on a broker of its own, with the hooks that hurt it.
	OnlyAlone bool
	// Short has fewer messages, rounds and kills; Soak has many more. [Run]
	// sets them from testing.Short and from LEAT_SOAK, if that is not empty.
	Short, Soak bool

	// spoil and flags break what the suite's own tests want broken: of
	// instances, and of processes.
	spoil func(*transport.Policy)
	flags []string
}

// Broker is one broker, as its own tests present it.
type Broker struct {
	// Transport connects to the broker as a further worker process does. The
	// suite closes it. Required.
	Transport func(tb TB) transport.Transport

	// Restart, Crash, Freeze, Deny, Disconnect and Link are those of
	// [transporttest.Broker], for the same broker. What is nil is not tested.
	Restart    func(tb TB)
	Crash      func(tb TB)
	Freeze     func(tb TB) (thaw func())
	Deny       func(tb TB) (allow func())
	Disconnect func(tb TB)
	Link       transporttest.Link

	// Config is what a worker's file has after `broker:`, in YAML's flow
	// style: "sqlite:///tmp/worker.db", or "{sqlite: {path: /tmp/worker.db}}".
	Config string

	// Store opens the store of dedup keys that the broker itself offers;
	// nil: one in memory.
	Store func(tb TB) middleware.DedupStore
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Takeover, 10*time.Second)
	def(&o.Patience, time.Minute)
	def(&o.Quiet, 200*time.Millisecond)
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	return o
}

// scale is a number of messages, rounds or kills.
func (o *Options) scale(short, normal, soak int) int {
	switch {
	case o.Soak:
		return soak
	case o.Short:
		return short
	default:
		return normal
	}
}
