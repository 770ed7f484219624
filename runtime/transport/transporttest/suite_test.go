package transporttest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/transporttest"
	"github.com/leat-io/leat/runtime/transport/transporttest/badtransport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a broker in memory that has all hooks, so that every case runs.
func everything(breaks func() func(transport.Transport) transport.Transport) transporttest.Options {
	return transporttest.Options{
		Open: func(transporttest.TB) transporttest.Broker {
			c := memory.Capabilities()
			c.Durable = true // as far as a transport can tell
			b := memory.NewBroker(memory.Options{Capabilities: &c})
			wrap := func(tr transport.Transport) transport.Transport { return tr }
			if breaks != nil {
				wrap = breaks()
			}
			send := func(tb transporttest.TB, topic string, msgs ...*message.Message) {
				p, err := b.Transport().OpenProducer(tb.Context())
				require.NoError(tb, err)
				require.NoError(tb, p.Publish(tb.Context(), topic, msgs...))
			}
			return transporttest.Broker{
				Transport: func(transporttest.TB) transport.Transport { return wrap(b.Transport()) },
				Kill: func(_ transporttest.TB, _ transport.Consumer, cfg transport.ConsumerConfig) {
					b.Cut(errors.New("killed"), func(c transport.ConsumerConfig) bool { return c.Name == cfg.Name })
				},
				Restart: func(transporttest.TB) { b.Cut(errors.New("restarted"), nil) },
				Foreign: func(tb transporttest.TB, topic, _ string) int {
					send(tb, topic, &message.Message{}, &message.Message{Payload: []byte("x")})
					return 2
				},
				PublishLater: func(tb transporttest.TB, topic string, msgs ...*message.Message) func() {
					return func() { send(tb, topic, msgs...) }
				},
			}
		},
		Takeover: time.Second,
		Short:    true,
	}
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
	for _, res := range check(t, everything(nil)) {
		require.Empty(t, res.Skip, res.Case)
		require.Empty(t, res.Failures, res.Case)
	}
}

// Each broken promise is found by the case that is named for it, and fails no
// case that has nothing to do with it.
func TestFaultsAreCaught(t *testing.T) {
	t.Parallel()
	for _, fault := range badtransport.All() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			report := check(t, everything(fault.New))
			require.Contains(t, report.Failed(), fault.Caught)
			if !fault.Broad {
				require.Subset(t, append(fault.Also, fault.Caught), report.Failed(), report)
			}
		})
	}
}

// A case that nothing is known to fail may find nothing.
func TestEveryCaseHasAFault(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{
		// Brokers fail these, and no transport around a broker can.
		"I1_restart": true, "G4_late_commit": true, "G4_commit_order": true, "G4_late_group": true,
	}
	for _, fault := range badtransport.All() {
		caught[fault.Caught] = true
	}
	for _, res := range check(t, everything(nil)) {
		require.True(t, caught[res.Case], "no fault is named for %s", res.Case)
	}
}
