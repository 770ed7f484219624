package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

// tests runs the package's tests, and looks for goroutines they have left.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	code := t.m.Run()
	if err := os.RemoveAll(filepath.Dir(binary.path)); binary.path != "" && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func TestMain(m *testing.M) {
	type order struct {
		ID    string `json:"id"`
		Total int64  `json:"total"`
	}
	testscript.Main(tests{m}, map[string]func(){
		"worker": func() {
			worker.Main(builtin.All(), worker.Handle("charge", handlers.JSON(func(ctx context.Context, o order) error {
				if o.Total <= 0 {
					return handlers.Permanent(errors.New("total must be positive"))
				}
				return handlers.Emit(ctx, "payments.charged", o)
			})))
		},
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:  filepath.Join("testdata", "script"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "sums": sums, "same": same},
	})
}

// exits runs a command and wants an exit code of it: exits CODE COMMAND….
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%s: %v", args[1], err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

var lastLine = regexp.MustCompile(`(?m)^published=(\d+) handled=(\d+) retried=(\d+) duplicates=(\d+) dead=(\d+) in [0-9.]+m?s\n\z`)

// sums checks the last line of a demo of N orders: sums N.
func sums(ts *testscript.TestScript, _ bool, args []string) {
	out := ts.ReadFile("stdout")
	m := lastLine.FindStringSubmatch(out)
	if m == nil {
		ts.Fatalf("the last line is not that of a demo: %q", out)
	}
	n := make([]int, len(m))
	for i := range m {
		n[i], _ = strconv.Atoi(m[i])
	}
	published, handled, duplicates, dead := n[1], n[2], n[4], n[5]
	if orders, _ := strconv.Atoi(args[0]); handled+dead != orders || published != orders+duplicates {
		ts.Fatalf("the numbers do not add up to %d: %s", orders, m[0])
	}
}

// same compares the last lines of two demos but for the time: same FILE.
func same(ts *testscript.TestScript, _ bool, args []string) {
	a, b := lastLine.FindStringSubmatch(ts.ReadFile("stdout")), lastLine.FindStringSubmatch(ts.ReadFile(args[0]))
	if a == nil || b == nil || !slices.Equal(a[1:], b[1:]) {
		ts.Fatalf("%v is not %v", a, b)
	}
}
