package brokertest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Brokers are the brokers of one test, which may do to them what others would
// not stand. Its methods fail the test on an error, so they are for the test's
// own goroutine. Names are those of scripts/brokers; single nodes of kafka3
// are kafka3-1 to kafka3-3, and so are those of rabbitmq3.
type Brokers struct {
	tb     testing.TB
	script string
	folder string // of all of them
	env    []string
	urls   map[string]string // by variable
}

// Start starts brokers of the test's own, which are taken down with it. They
// cost seconds and memory, so the test is skipped unless LEAT_TEST_OWN is 1;
// where CI is set, it fails then.
func Start(tb testing.TB, names ...string) *Brokers {
	tb.Helper()
	if os.Getenv("LEAT_TEST_OWN") != "1" {
		missing(tb, "needs %s of its own: LEAT_TEST_OWN=1 allows to start brokers", strings.Join(names, ", "))
	}
	// Beside the shared ones, where make test looks for what an aborted test
	// has left. A test's own folder has too long a name for sockets.
	parent := os.Getenv("LEAT_BROKERS_RUN")
	if parent != "" {
		parent = filepath.Dir(parent)
	}
	run, err := os.MkdirTemp(parent, "own-") //nolint:usetesting // see above
	if err != nil {
		tb.Fatalf("folder for brokers: %v", err)
	}
	b := &Brokers{tb: tb, script: script(tb), folder: run, env: environment(run)}
	tb.Cleanup(func() {
		b.run(context.Background(), "down")       // the test's context has ended
		if err := os.RemoveAll(run); err != nil { //nolint:gosec // it was made above
			tb.Errorf("folder of brokers: %v", err)
		}
	})
	b.Up(names...)
	b.urls = map[string]string{}
	for line := range strings.Lines(b.run(tb.Context(), "env")) {
		variable, url, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		b.urls[variable] = strings.Trim(url, "'")
	}
	return b
}

// environment is that of the script: a broker somebody else configured is not
// the test's own.
func environment(run string) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "LEAT_TEST_") || strings.HasPrefix(e, "LEAT_BROKERS_RUN=")
	})
	if os.Getenv("LEAT_BROKERS_DEADLINE") == "" {
		env = append(env, "LEAT_BROKERS_DEADLINE=120")
	}
	return append(env, "LEAT_BROKERS_RUN="+run)
}

// script is scripts/brokers in the nearest folder above that has it.
func script(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatalf("working directory: %v", err)
	}
	for {
		path := filepath.Join(dir, "scripts", "brokers")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		above := filepath.Dir(dir)
		if above == dir {
			tb.Fatal("scripts/brokers is in no folder above this test")
		}
		dir = above
	}
}

// URL is where a broker listens. It is the same for its whole life.
func (b *Brokers) URL(name string) string {
	b.tb.Helper()
	url := b.urls[variables[name]]
	if cluster, node, single := strings.Cut(name, "-"); single && url == "" {
		url = b.urls[variables[cluster]]
		scheme, addresses, _ := strings.Cut(url, "://")
		all := strings.Split(addresses, ",")
		if n, err := strconv.Atoi(node); err == nil && n >= 1 && n <= len(all) {
			url = scheme + "://" + all[n-1]
		}
	}
	if url == "" {
		b.tb.Fatalf("%s was not started", name)
	}
	return url
}

// Data is the folder where a broker has its data, and what was made with them.
func (b *Brokers) Data(name string) string { return filepath.Join(b.folder, name, "data") }

// Kill ends brokers by SIGKILL; their data stays.
func (b *Brokers) Kill(names ...string) { b.tb.Helper(); b.each("kill", names) }

// Stop ends brokers cleanly; their data stays.
func (b *Brokers) Stop(names ...string) { b.tb.Helper(); b.each("stop", names) }

// Up brings back, with their data, brokers that were killed or stopped, and
// waits until they serve.
func (b *Brokers) Up(names ...string) { b.tb.Helper(); b.each("up", names) }

// Restart stops brokers cleanly and brings them back.
func (b *Brokers) Restart(names ...string) { b.tb.Helper(); b.each("restart", names) }

// Pause stops every process of brokers where it is, by SIGSTOP: connections
// stay open, and nobody answers.
func (b *Brokers) Pause(names ...string) { b.tb.Helper(); b.each("pause", names) }

// Resume ends a Pause.
func (b *Brokers) Resume(names ...string) { b.tb.Helper(); b.each("resume", names) }

// Exec runs a client program beside a broker, such as psql, mariadb or
// rabbitmqctl, already told where the broker is, and returns what it printed.
func (b *Brokers) Exec(name string, args ...string) string {
	b.tb.Helper()
	return b.run(b.tb.Context(), append([]string{"exec", name}, args...)...)
}

// Command is a command of scripts/brokers for these brokers, for what runs
// commands itself.
func (b *Brokers) Command(args ...string) []string {
	return slices.Concat([]string{"env", "-i"}, b.env, []string{b.script}, args)
}

func (b *Brokers) each(command string, names []string) {
	b.tb.Helper()
	b.run(b.tb.Context(), append([]string{command}, names...)...)
}

// run runs the script and returns its standard output.
func (b *Brokers) run(ctx context.Context, args ...string) string {
	b.tb.Helper()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, b.script, args...) //nolint:gosec // the project's own script
	c.Env, c.Stdout, c.Stderr = b.env, &stdout, &stderr
	c.WaitDelay = 10 * time.Second
	if err := c.Run(); err != nil {
		b.tb.Fatalf("scripts/brokers %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}
