package conformance

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
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/sql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance_memory(t *testing.T) {
	t.Parallel()
	report := Run(t, Options{
		Open: func(TB) Broker {
			b := memory.NewBroker(memory.Options{})
			return Broker{Transport: func(TB) transport.Transport { return b.Transport() }}
		},
		Takeover: time.Second,
		Lacks:    map[string]string{"*": "the broker is the process"},
	})
	for name, why := range report.Skipped() {
		require.Regexp(t, "^(capability Durable is missing|no .*: the broker is the process)$", why, name)
	}
}

func TestConformance_sqlite(t *testing.T) {
	t.Parallel()
	report := Run(t, sqlite())
	for name, why := range report.Skipped() {
		require.Contains(t, why, ": the broker is a file", name)
	}
}

func sqlite() Options {
	// The lease of processes, whose kills have others wait for it, is short. The
	// other is longer than a busy machine with the race detector may keep a
	// write waiting: a lease that is lost has messages come twice.
	const killed, lease = 2 * time.Second, 5 * time.Second
	return Options{
		Open: func(tb TB) Broker {
			path := filepath.Join(tb.TempDir(), "worker.db")
			return Broker{
				Transport: func(tb TB) transport.Transport {
					tr, err := sql.OpenSQLite(sql.Options{Path: path, Lease: lease, Poll: 20 * time.Millisecond})
					require.NoError(tb, err)
					return tr
				},
				Config: fmt.Sprintf("{sqlite: {path: %q, lease: %s, poll: 20ms}}", path, killed),
				Store: func(tb TB) middleware.DedupStore {
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
		Lacks:    map[string]string{"*": "the broker is a file"},
		Takeover: lease + lease/2,
	}
}

// TestLossIsCaught: workers that ack what they have not handled are found out
// by the cases that kill them.
func TestLossIsCaught(t *testing.T) {
	t.Parallel()
	o := sqlite()
	o.Short, o.Patience, o.Takeover = true, 5*time.Second, time.Second
	o.flags = []string{"--set=consumers.c.ack=on_receive"}
	names := []string{"N1_kill_loop", "C2_crash_loop", "H2_second_signal", "H3_never_returns"}
	for _, res := range Check(t.Context(), o, names...) {
		require.NotEmpty(t, res.Failures, res.Case)
		require.Regexp(t, "not in time: (all messages are done|the handler runs)", res.Failures[0], res.Case)
	}
}
