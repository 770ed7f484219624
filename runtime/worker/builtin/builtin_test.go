package builtin_test

import (
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env() worker.Env {
	return worker.Env{Topology: transport.TopologyDeclare, Log: slog.New(slog.DiscardHandler)}
}

func component(kind, url, dir string) config.Component {
	return config.Component{Kind: kind, URL: config.NewSecret(url), Dir: dir}
}

// store is the URL of a new store of a kind.
func store(t *testing.T, kind string) string {
	t.Helper()
	if dialect := sqldb.Dialect(kind); sqldbtest.Brokers[dialect] != "" {
		o := sqldbtest.New(t, dialect)
		return at(t, o.Server.URL, o.Server.Database)
	}
	return map[string]string{"sqlite": "sqlite://some.db", "memory": "memory://x"}[kind]
}

// unusable is the URL of a store that waiting will not mend; of an SQLite
// file, where dir has a folder of its name.
func unusable(t *testing.T, kind string) string {
	t.Helper()
	if broker := sqldbtest.Brokers[sqldb.Dialect(kind)]; broker != "" {
		return at(t, brokertest.URL(t, broker), "leat_is_not_there")
	}
	return store(t, kind)
}

// at is the URL of a database on a server.
func at(t *testing.T, server, database string) string {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.Path = "/" + database
	return u.String()
}

// TestTransports: opening touches nothing.
func TestTransports(t *testing.T) {
	t.Parallel()
	for _, k := range builtin.Table().Transports {
		require.True(t, strings.HasPrefix(k.Example, k.Kind+"://"), k.Example)
		require.NotEmpty(t, k.Doc)
		dir := t.TempDir()
		tr, err := k.Open(env(), component(k.Kind, k.Example, dir))
		require.NoError(t, err)
		require.Equal(t, k.Kind, tr.Kind())
		require.NoError(t, tr.Close(t.Context()))
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, k.Kind)
	}
}

// TestStores: each remembers, and forgets with its handle only what it says.
func TestStores(t *testing.T) {
	t.Parallel()
	for _, k := range builtin.Table().Stores {
		t.Run(k.Kind, func(t *testing.T) {
			t.Parallel()
			open, err := k.Check(env(), component(k.Kind, store(t, k.Kind), t.TempDir()))
			require.NoError(t, err)
			for n := range 2 {
				s, closing, err := open(t.Context())
				require.NoError(t, err)
				state, err := s.Claim(t.Context(), middleware.DedupKey{Scope: "s", Key: "k"}, time.Minute)
				require.NoError(t, err)
				if n == 0 || k.PerProcess {
					require.Equal(t, middleware.DedupFresh, state.Status)
					require.NoError(t, s.Done(t.Context(), middleware.DedupClaim{DedupKey: middleware.DedupKey{Scope: "s", Key: "k"}, Token: state.Token}, time.Hour))
				} else {
					require.Equal(t, middleware.DedupDone, state.Status)
				}
				require.NoError(t, closing())
			}
		})
	}
}

// TestStoreRefuses: what waiting will not mend is marked.
func TestStoreRefuses(t *testing.T) {
	t.Parallel()
	for _, k := range builtin.Table().Stores {
		if k.PerProcess {
			continue
		}
		t.Run(k.Kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "some.db"), 0o700))
			open, err := k.Check(env(), component(k.Kind, unusable(t, k.Kind), dir))
			require.NoError(t, err)
			_, _, err = open(t.Context())
			require.True(t, transport.Refused(err), err)

			verify := env()
			verify.Topology = transport.TopologyVerify
			open, err = k.Check(verify, component(k.Kind, store(t, k.Kind), t.TempDir()))
			require.NoError(t, err)
			_, _, err = open(t.Context())
			require.True(t, transport.Refused(err), "topology: verify creates nothing")
		})
	}
}
