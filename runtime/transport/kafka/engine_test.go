package kafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// TestConformance_engine runs the engine, and the worker's binary, over a cluster.
func TestConformance_engine(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t, "kafka")
	config := fmt.Sprintf("{kafka: {brokers: [%s], session_timeout: %s, metadata_age: 1s, partitions: 4}}",
		strings.ReplaceAll(strings.TrimPrefix(url, "kafka://"), ",", ", "), session)
	report := conformance.Run(t, conformance.Options{
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
	})
	for name, why := range report.Skipped() {
		require.Regexp(t, "the broker is shared|Attempts", why, name)
	}
}
