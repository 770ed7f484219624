package worker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const ownMain = `package main

import (
	"context"
	"fmt"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

type order struct {
	ID int
}

func charge(_ context.Context, o order) error {
	fmt.Println("charged order", o.ID)
	return nil
}

func main() {
	worker.Main(builtin.All(), worker.Handle("charge", handlers.JSON(charge)))
}
`

const ownYAML = `broker: sqlite://worker.db
consumers:
  charge:
    topic: orders.placed
    handler: charge
`

// TestOwnModule is a handler in a module of its own, in under 25 lines, with
// the five-line file.
func TestOwnModule(t *testing.T) {
	t.Parallel()
	require.Less(t, strings.Count(ownMain, "\n"), 25)
	require.Equal(t, 5, strings.Count(ownYAML, "\n"))
	checkout, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	require.NoError(t, err)

	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.go":     ownMain,
		"worker.yaml": ownYAML,
		"go.sum":      string(sums),
		"go.mod": "module example.com/mine\n\ngo 1.26\n\nrequire github.com/leat-io/leat v0.0.0\n\n" +
			"replace github.com/leat-io/leat => " + checkout + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		var stdout, stderr strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		require.NoError(t, cmd.Run(), "%s %v: %s", name, args, &stderr)
		return stdout.String()
	}
	run("go", "build", "-o", "mine", ".")
	mine := filepath.Join(dir, "mine")
	require.Equal(t, "published 1\n", run(mine, "publish", "orders.placed", `{"id": 1}`))
	require.Equal(t, "charged order 1\n", run(mine, "run", "--until-idle", "300ms"))
}
