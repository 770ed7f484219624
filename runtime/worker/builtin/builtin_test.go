package builtin_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/config"
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

// stores has an example of each kind of store.
var stores = map[string]string{"sqlite": "sqlite://some.db", "memory": "memory://x"}

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
		open, err := k.Check(env(), component(k.Kind, stores[k.Kind], t.TempDir()))
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
	}
}

// TestStoreRefuses: what waiting will not mend is marked.
func TestStoreRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "some.db"), 0o700))
	for _, k := range builtin.Table().Stores {
		if k.PerProcess {
			continue
		}
		open, err := k.Check(env(), component(k.Kind, stores[k.Kind], dir))
		require.NoError(t, err)
		_, _, err = open(t.Context())
		require.True(t, transport.Refused(err), err)
	}

	verify := env()
	verify.Topology = transport.TopologyVerify
	for _, k := range builtin.Table().Stores {
		if k.PerProcess {
			continue
		}
		open, err := k.Check(verify, component(k.Kind, stores[k.Kind], t.TempDir()))
		require.NoError(t, err)
		_, _, err = open(t.Context())
		require.True(t, transport.Refused(err), "topology: verify creates nothing")
	}
}
