package worker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInitBuilds has the written project built, tested and run, as a module of
// its own.
func TestInitBuilds(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "shop")
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if name != testworker(t) {
			cmd.Dir = dir
		}
		require.NoError(t, cmd.Run(), "%s %v: %s%s", name, args, &stdout, &stderr)
		return stdout.String()
	}
	require.Contains(t, run(testworker(t), "init", dir), "go test .")
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/shop\n\ngo 1.26\n\n"+
		"require github.com/leat-io/leat v0.0.0\n\nreplace github.com/leat-io/leat => "+checkout+"\n"), 0o600))

	require.Empty(t, run("gofmt", "-l", "."))
	run("go", "build", "-o", "shop", ".")
	run("go", "vet", ".")
	require.Contains(t, run("go", "test", "."), "ok")
	shop := filepath.Join(dir, "shop")
	require.Equal(t, "worker.yaml: ok\n", run(shop, "lint"))
	require.Equal(t, "published 1\n", run(shop, "publish", "orders.placed", `{"id": "o-1", "total": 500}`))
	run(shop, "run", "--until-idle", "300ms")
	require.Contains(t, run(shop, "groups", "list"), "shop.charge")
}
