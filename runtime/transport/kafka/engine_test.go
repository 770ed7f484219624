package kafka_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// engine is the suite of engine and worker's binary over a cluster.
func engine(url string) conformance.Options {
	config := fmt.Sprintf("{kafka: {brokers: [%s], session_timeout: %s, metadata_age: 1s, partitions: 4}}",
		strings.ReplaceAll(strings.TrimPrefix(url, "kafka://"), ",", ", "), session)
	return conformance.Options{
		Open: func(tb conformance.TB) conformance.Broker {
			proxy := brokertest.NewProxy(tb, strings.TrimPrefix(url, "kafka://"))
			return conformance.Broker{
				Transport: func(tb conformance.TB) transport.Transport {
					tr := open(tb, options(url))
					kafka.Through(tr, proxy.Addr())
					return tr
				},
				Config: config,
				Link:   proxy,
			}
		},
		Worker:   "github.com/leat-io/leat/runtime/conformance/internal/testworker",
		Takeover: 2 * session,
		Short:    true, // LEAT_SOAK has more
		Lacks:    map[string]string{"*": "the broker is shared"},
	}
}

// TestConformance_engine runs the engine, and the worker's binary, over a cluster.
func TestConformance_engine(t *testing.T) {
	t.Parallel()
	for name, why := range conformance.Run(t, engine(brokertest.URL(t, "kafka"))).Skipped() {
		require.Regexp(t, "the broker is shared|Attempts", why, name)
	}
}

// TestConformance_engineAlone has the cases that hurt the broker, on one of its own.
func TestConformance_engineAlone(t *testing.T) {
	t.Parallel()
	brokers := brokertest.Start(t, "kafka")
	o := engine(brokers.URL("kafka"))
	inner := o.Open
	o.OnlyAlone = true
	o.Patience = 2 * time.Minute
	o.Open = func(tb conformance.TB) conformance.Broker {
		b := inner(tb)
		b.Restart = func(conformance.TB) { brokers.Restart("kafka") }
		b.Crash = func(conformance.TB) { brokers.Kill("kafka"); brokers.Up("kafka") }
		b.Freeze = func(conformance.TB) func() {
			brokers.Pause("kafka")
			return func() { brokers.Resume("kafka") }
		}
		b.Disconnect = func(conformance.TB) { b.Link.Cut(); b.Link.Heal() }
		return b
	}
	o.Lacks["*"] = "not here"
	require.Subset(t, []string{"I10_denied"}, slices.Collect(maps.Keys(conformance.Run(t, o).Skipped())))
}
