package leat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFromWatermill vets the Go of the page, each block a package of its own.
func TestFromWatermill(t *testing.T) {
	t.Parallel()
	files := goFiles(readPage(t, "docs/from-watermill.md"))
	require.Len(t, files, 5)
	for _, file := range files {
		path := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		out, err := exec.CommandContext(t.Context(), "go", "vet", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
