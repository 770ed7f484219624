package conformance_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/dedupsql"
	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// processes are the cases that need a broker outside of the worker.
func processes() []string {
	return []string{
		"N1_kill_loop", "H1_sigterm", "C2_crash_loop", "D3_killed_in_backoff", "H2_second_signal", "H3_never_returns", "SPI_two_start",
	}
}

func TestConformance_memory(t *testing.T) {
	t.Parallel()
	report := conformance.Run(t, conformance.Options{
		Open: func(conformance.TB) conformance.Broker {
			b := memory.NewBroker(memory.Options{})
			return conformance.Broker{Transport: func(conformance.TB) transport.Transport { return b.Transport() }}
		},
		Takeover: time.Second,
	})
	for name, why := range report.Skipped() {
		require.Contains(t, processes(), name)
		require.Contains(t, why, "capability")
	}
}

func TestConformance_sqlite(t *testing.T) {
	t.Parallel()
	// Longer than what a busy machine may keep a goroutine waiting for: a
	// lease that is lost has messages come twice.
	const lease = 3 * time.Second
	report := conformance.Run(t, conformance.Options{
		Open: func(tb conformance.TB) conformance.Broker {
			path := filepath.Join(tb.TempDir(), "worker.db")
			return conformance.Broker{
				Transport: func(tb conformance.TB) transport.Transport {
					tr, err := sql.OpenSQLite(sql.Options{Path: path, Lease: lease, Poll: 20 * time.Millisecond})
					require.NoError(tb, err)
					return tr
				},
				Config: fmt.Sprintf("{sqlite: {path: %q, lease: %s, poll: 20ms}}", path, lease),
				Store: func(tb conformance.TB) middleware.DedupStore {
					db, err := sqldb.Open(tb.Context(), sqldb.Options{Path: path})
					require.NoError(tb, err)
					s := dedupsql.New(db, transport.Instance{})
					tb.Cleanup(func() {
						require.NoError(tb, s.Close())
						require.NoError(tb, db.Close())
					})
					return s
				},
			}
		},
		Worker:   "./internal/testworker",
		Takeover: lease + lease/2,
	})
	require.Empty(t, report.Skipped())
}
