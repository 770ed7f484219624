package leat_test

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inPlaceOf is what is run for lines that would not end or run this very test.
// All others run as they stand.
var inPlaceOf = map[string]string{
	"go run ./cmd/worker demo": `go run -C "$REPOSITORY" ./cmd/worker demo --count 40 --seed 1`,
	"make test":                `make -C "$REPOSITORY" help | grep " test "`,
}

// TestReadme compiles the program of the README, lints each of its files with
// it, and runs its commands, in their order and in one folder.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := blocksOf(string(text))
	require.Len(t, blocks["go"], 1)
	require.NotEmpty(t, blocks["yaml"])
	require.NotEmpty(t, blocks["sh"])

	program := blocks["go"][0]
	require.Less(t, strings.Count(program, "\n"), 25, "the program is to fit on the first screen")
	formatted, err := format.Source([]byte(program))
	require.NoError(t, err)
	require.Equal(t, string(formatted), program)

	s := newSite(t)
	s.bin = s.dir // as the README builds it
	s.build(program)
	for i, block := range blocks["yaml"] {
		s.write(fmt.Sprintf("%d.yaml", i), block)
		s.run(fmt.Sprintf("worker lint %d.yaml", i))
	}
	s.write("worker.yaml", blocks["yaml"][0])
	var said string
	for _, block := range blocks["sh"] {
		for line := range strings.Lines(block) {
			command, _, _ := strings.Cut(line, "  #")
			command = strings.TrimSpace(command)
			require.False(t, strings.HasPrefix(command, "worker "), "%s: a shell does not look for commands in this folder", command)
			if other, ok := inPlaceOf[command]; ok {
				command = other
			}
			said += s.run(command)
		}
	}
	require.Contains(t, said, `"handled":1`)
	require.Contains(t, said, `"dead":1`)
	require.Contains(t, said, "worker.db: ok")
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// blocksOf gives the fenced blocks by their language.
func blocksOf(markdown string) map[string][]string {
	out := map[string][]string{}
	for _, m := range fence.FindAllStringSubmatch(markdown, -1) {
		out[m[1]] = append(out[m[1]], m[2])
	}
	return out
}

// site is a folder to run commands in, with a worker in its PATH.
type site struct {
	t          *testing.T
	dir, bin   string
	repository string
}

func newSite(t *testing.T) *site {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	return &site{t: t, dir: t.TempDir(), bin: t.TempDir(), repository: here}
}

func (s *site) write(name, content string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600))
}

// build makes the worker of a program's source.
func (s *site) build(source string) {
	s.t.Helper()
	s.write("main.go", source)
	s.buildFrom(filepath.Join(s.dir, "main.go"))
}

// buildWorker makes the worker that has only what is built in.
func (s *site) buildWorker() {
	s.t.Helper()
	s.buildFrom("./cmd/worker")
}

func (s *site) buildFrom(what string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "go", "build", "-o", filepath.Join(s.bin, "worker"), what)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// run runs a command line, which must succeed, and returns what it said.
func (s *site) run(line string) string {
	s.t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), "sh", "-c", line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, &out, &out
	cmd.Env = append(os.Environ(),
		"PATH="+s.bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"REPOSITORY="+s.repository, "BROKER_URL=sqlite://worker.db", "MAKEFLAGS=")
	require.NoError(s.t, cmd.Run(), "%s\n%s", line, &out)
	return out.String()
}

// TestDesign checks that the tests and files that DESIGN.md names are there,
// and that it names every file of the engine.
func TestDesign(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("DESIGN.md")
	require.NoError(t, err)
	tests := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(string(text), -1) {
		require.True(t, tests[m[1]], "there is no %s", m[1])
	}
	for _, m := range regexp.MustCompile("`([a-z_]+/[a-z_/]+\\.go)`").FindAllStringSubmatch(string(text), -1) {
		require.FileExists(t, m[1])
	}
	engine, err := filepath.Glob("runtime/*.go")
	require.NoError(t, err)
	for _, file := range engine {
		if !strings.HasSuffix(file, "_test.go") {
			require.Contains(t, string(text), "| `"+filepath.ToSlash(file)+"` |", "the table of files has no line for it")
		}
	}
	house := regexp.MustCompile("(?s)## The house\n\n```\n(.*?)```").FindStringSubmatch(string(text))
	require.NotNil(t, house)
	var above []string // folders, by how far the line is indented
	for line := range strings.Lines(house[1]) {
		name := strings.Fields(line)[0]
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		above = append(above[:depth], name)
		require.DirExists(t, filepath.Join(above...))
	}
}
