package sql_test

import (
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// engine presents a world for every case, behind a link. The lease of
// processes, whose kills have others wait for it, is short; see package conformance.
func engine(kind, serverURL string, own *brokertest.Brokers) conformance.Options {
	const killed, lease = 2 * time.Second, 5 * time.Second
	name := servers()[kind]
	o := conformance.Options{
		Open: func(tb conformance.TB) conformance.Broker {
			w := newWorld(tb, kind, serverURL)
			u, err := url.Parse(w.url)
			require.NoError(tb, err)
			link := brokertest.NewProxy(tb, u.Host)
			u.Host = link.Addr()
			opened := 0
			linked := func(o *sql.ServerOptions) {
				opened++
				o.URL, o.Lease = u.String(), lease
				o.PoolSize = 9 + opened // so that each has connections of its own, as another process has
			}
			where := "schema: " + w.name
			if kind == "mysql" {
				where = "database: " + w.name
			}
			b := conformance.Broker{
				Transport:  func(tb conformance.TB) transport.Transport { return w.transport(tb, linked) },
				Config:     fmt.Sprintf("{%s: {url: %q, username: %s, password: %s, %s, lease: %s, poll: 20ms}}", kind, u, w.name, w.name, where, killed),
				Link:       link,
				Disconnect: func(tb conformance.TB) { w.disconnect(tb) },
				Deny:       func(tb conformance.TB) func() { return w.deny(tb) },
			}
			if own != nil {
				b.Restart = func(conformance.TB) { own.Restart(name) }
				b.Crash = func(conformance.TB) { own.Kill(name); own.Up(name) }
				b.Freeze = func(conformance.TB) func() { own.Pause(name); return func() { own.Resume(name) } }
			}
			return b
		},
		Worker:   "../../conformance/internal/testworker",
		Short:    true, // LEAT_SOAK has more
		Takeover: lease + lease/2,
	}
	if own == nil {
		o.Lacks = map[string]string{"*": "the server is not ours alone"}
	}
	return o
}

// TestEngine_postgres has the engine, and workers that are stopped and killed, at
// length: package conformance has the short form of the same.
func TestEngine_postgres(t *testing.T) {
	t.Parallel()
	soaks(t)
	conformance.Run(t, engine("postgres", brokertest.URL(t, "postgres"), nil))
}

func TestEngine_mysql(t *testing.T) {
	t.Parallel()
	soaks(t)
	conformance.Run(t, engine("mysql", brokertest.URL(t, "mariadb"), nil))
}

func soaks(t *testing.T) {
	t.Helper()
	if os.Getenv(killsSoak) == "" {
		t.Skip("it takes long: LEAT_SOAK=1 has it")
	}
}

// TestEngine_own has servers that are stopped, killed and frozen meanwhile.
func TestEngine_own(t *testing.T) {
	t.Parallel()
	for kind, name := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			own := brokertest.Start(t, name)
			report := conformance.Run(t, engine(kind, own.URL(name), own))
			require.Empty(t, report.Skipped())
		})
	}
}
