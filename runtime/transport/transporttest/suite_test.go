package transporttest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/transporttest"
	"github.com/leat-io/leat/runtime/transport/transporttest/badtransport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a broker in memory that has all hooks, so that every case runs.
func everything(f badtransport.Fault, change ...func(*memory.Options)) transporttest.Options {
	return transporttest.Options{
		Open: func(transporttest.TB) transporttest.Broker {
			c := memory.Capabilities()
			c.Durable = true // as far as a transport can tell
			o := memory.Options{Capabilities: &c}
			for _, fn := range change {
				fn(&o)
			}
			b := memory.NewBroker(o)
			broker := badtransport.Fragile(b)
			if f.New != nil {
				connect, wrap := broker.Transport, f.New()
				broker.Transport = func(tb transporttest.TB) transport.Transport { return wrap(connect(tb)) }
			}
			if f.Broker != nil {
				f.Broker(&broker)
			}
			return broker
		},
		Takeover: time.Second,
		Short:    true,
	}
}

// log is a broker of the kind of Kafka, queue one of the kind of RabbitMQ.
func log(o *memory.Options) {
	o.Log = true
	o.Capabilities.ReleaseInOrder, o.Capabilities.DurableDelay, o.Capabilities.Attempts = false, false, transport.KeepProcess
}

func queue(o *memory.Options) {
	c := o.Capabilities
	c.KeyOrder, c.Attempts, c.StableCoordinates = transport.ScopeWorker, transport.KeepAfterDelay, false
	c.ByteWindow, c.ReleaseInOrder, c.Depth = false, false, false
}

func check(t *testing.T, o transporttest.Options) (report transporttest.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		report = transporttest.Check(t.Context(), o)
		<-time.After(24 * time.Hour) // for what a fault has left running
	})
	return report
}

func TestEveryCaseCanPass(t *testing.T) {
	t.Parallel()
	for _, res := range check(t, everything(badtransport.Fault{})) {
		require.Empty(t, res.Skip, res.Case)
		require.Empty(t, res.Failures, res.Case)
	}
}

// A broker that can do less is skipped for that alone, and keeps the rest, in
// trouble too.
func TestOtherKindsCanPass(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*memory.Options){"log": log, "queue": queue} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, res := range check(t, everything(badtransport.Fault{}, kind)) {
				require.Regexp(t, "^(capability .* is missing)?$", res.Skip, res.Case)
				require.Empty(t, res.Failures, res.Case)
			}
		})
	}
}

// Each broken promise is found by the case that is named for it, and fails no
// case that has nothing to do with it.
func TestFaultsAreCaught(t *testing.T) {
	t.Parallel()
	for _, fault := range badtransport.All() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			report := check(t, everything(fault))
			require.Contains(t, report.Failed(), fault.Caught)
			if !fault.Broad {
				require.Subset(t, append(fault.Also, fault.Caught), report.Failed(), report)
			}
		})
	}
}

// Where a redelivery is known by its mark, one without is found.
func TestMissingMarkIsCaught(t *testing.T) {
	t.Parallel()
	unmarked := badtransport.Fault{New: func() func(transport.Transport) transport.Transport {
		return badtransport.Deliveries(func(d *transport.Delivery) { d.Redelivered = false })
	}}
	require.NotContains(t, check(t, everything(unmarked)).Failed(), "SPI_redelivered")
	require.NotContains(t, check(t, everything(badtransport.Fault{}, queue)).Failed(), "SPI_redelivered")
	require.Contains(t, check(t, everything(unmarked, queue)).Failed(), "SPI_redelivered")
}

// A case that nothing is known to fail may find nothing.
func TestEveryCaseHasAFault(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for _, fault := range badtransport.All() {
		caught[fault.Caught] = true
	}
	for _, res := range check(t, everything(badtransport.Fault{})) {
		require.True(t, caught[res.Case], "no fault is named for %s", res.Case)
	}
}
