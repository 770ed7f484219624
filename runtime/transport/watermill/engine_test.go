package watermill_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
)

// engineCases are run on each kind, by engines and by worker processes that
// are stopped; soakCases with LEAT_SOAK too, and some of those are killed.
var (
	engineCases = []string{"H1_sigterm", "C1_attempts", "C5_panic", "E1_complete"}
	soakCases   = []string{
		"N1_kill_loop", "C2_crash_loop", "H2_second_signal", "SAME_outcome", "H1_drain", "A6_each_once",
		"C8_mutation", "D5_shutdown_no_failure", "D6_permanent", "E2_fields",
	}
)

func soaking() bool { return os.Getenv("LEAT_SOAK") != "" }

// TestConformance_engine runs the engine, and a worker's process, on each kind.
// What fails is listed, with its reason, and the list is held against what has
// failed. With LEAT_SOAK there are 20 stops and all of the cases' messages.
func TestConformance_engine(t *testing.T) {
	t.Parallel()
	soak := soaking()
	patience := time.Minute
	if soak {
		patience = 5 * time.Minute // thousands of messages, one by one
	}
	for name, k := range kinds() { //nolint:paralleltest // each is many processes
		t.Run(name, func(t *testing.T) {
			url := k.url(t)
			names := engineCases
			if soak {
				names = slices.Concat(engineCases, soakCases, k.engineMore)
			}
			report := conformance.Check(t.Context(), conformance.Options{
				Open: func(conformance.TB) conformance.Broker {
					return conformance.Broker{
						Transport: func(tb conformance.TB) transport.Transport {
							tr, err := k.open(url)
							require.NoError(tb, err)
							return tr
						},
						Config: fmt.Sprintf(k.config, strings.TrimPrefix(url, "kafka://")),
					}
				},
				Short: !soak, Worker: "../../conformance/internal/testworker",
				InFlight: k.inFlight, Patience: patience, Takeover: 12 * time.Second, Parallel: cmp.Or(k.parallel, 3), // a killed member of sarama's is missed after 10s
			}, names...)
			t.Logf("engine conformance\n%v", report)
			for _, name := range names {
				at := slices.IndexFunc(report, func(r conformance.Result) bool { return r.Case == name })
				require.GreaterOrEqual(t, at, 0, name)
				require.Empty(t, report[at].Skip, name)
				if why := k.engineCannot[name]; why != "" {
					require.True(t, report[at].Failed, "%s passes: it is listed as %q", name, why)
					continue
				}
				require.Empty(t, report[at].Failures, name)
			}
		})
	}
}
