package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"worker": main})
}

func TestExample(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{Files: []string{"testdata/readme.txtar"}, Setup: func(e *testscript.Env) error {
		for _, name := range []string{"worker.yaml", "expected.txt"} {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(e.Cd, name), content, 0o600); err != nil {
				return err
			}
		}
		return nil
	}})
}

var (
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	caseName = regexp.MustCompile("`([A-Z]+[0-9]*_[a-z_]+)`")
)

// TestPage vets the Go of the page that this example is written from, and
// looks for the cases it names.
func TestPage(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/writing-a-transport.md")
	var programs []string // blocks that begin with no package go on
	for _, m := range goBlock.FindAllStringSubmatch(page, -1) {
		if strings.HasPrefix(m[1], "package ") {
			programs = append(programs, "")
		}
		programs[len(programs)-1] += "\n" + m[1]
	}
	require.Len(t, programs, 3)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	vet := func(files ...string) {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"vet"}, files...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	vet(write("shelf.go", programs[0]), write("shelf_test.go", programs[2]), write("rest.go", read(t, "testdata/shelf.go")))
	vet(write("main.go", programs[1]))

	cases := read(t, "../../runtime/transport/transporttest/cases.go")
	named := caseName.FindAllStringSubmatch(page, -1)
	require.Greater(t, len(named), 10)
	for _, m := range named {
		require.Contains(t, cases, `{"`+m[1]+`"`)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
