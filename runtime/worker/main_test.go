package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
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
	charge := func(ctx context.Context, o order) error {
		if o.Total <= 0 {
			return handlers.Permanent(errors.New("total must be positive"))
		}
		return handlers.Emit(ctx, "payments.charged", o)
	}
	testscript.Main(tests{m}, map[string]func(){
		"worker": func() {
			worker.Main(builtin.All(), worker.Handle("charge", handlers.JSON(charge)),
				worker.Handle("panic", func(*message.Message) ([]*message.Message, error) { panic("at the disco") }),
				worker.Handle("goexit", func(*message.Message) ([]*message.Message, error) { goruntime.Goexit(); return nil, nil }),
				worker.Handle("hang", func(m *message.Message) ([]*message.Message, error) {
					<-m.Context().Done()
					return nil, m.Context().Err()
				}),
				worker.Handle("nack", func(m *message.Message) ([]*message.Message, error) { m.Nack(); return nil, nil }),
				worker.Handle("emit", func(m *message.Message) ([]*message.Message, error) {
					return nil, handlers.Emit(m.Context(), "no such name", m.Payload)
				}),
			)
		},
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:  filepath.Join("testdata", "script"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "waitfor": waitfor, "sums": sums, "same": same},
		Setup: func(e *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Setenv("PORT", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) // free, a moment ago
			return l.Close()
		},
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

// waitfor runs a command until it succeeds: waitfor COMMAND….
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: waitfor COMMAND…")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for tries := 1; ; tries++ {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if tries == 500 {
			ts.Fatalf("%s: %v", args[0], err)
		}
		<-tick.C
	}
}

var lastLine = regexp.MustCompile(`(?m)^published=(\d+) handled=(\d+) retried=(\d+) duplicates=(\d+) dead=(\d+) in [0-9.]+m?s\n\z`)

// numbers is the last line of a demo.
type numbers struct{ published, handled, retried, duplicates, dead int }

// lastNumbers reads the last line; nil if it is not one.
func lastNumbers(out string) *numbers {
	m := lastLine.FindStringSubmatch(out)
	if m == nil {
		return nil
	}
	var n [6]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i])
	}
	return &numbers{n[1], n[2], n[3], n[4], n[5]}
}

// sums checks the last line of a demo of N orders: sums N.
func sums(ts *testscript.TestScript, _ bool, args []string) {
	n := lastNumbers(ts.ReadFile("stdout"))
	if n == nil {
		ts.Fatalf("the last line is not that of a demo")
	}
	if orders, _ := strconv.Atoi(args[0]); n.handled+n.dead != orders || n.published != orders+n.duplicates {
		ts.Fatalf("the numbers do not add up to %d: %+v", orders, *n)
	}
}

// same compares the last lines of two demos but for the time: same FILE.
func same(ts *testscript.TestScript, _ bool, args []string) {
	a, b := lastNumbers(ts.ReadFile("stdout")), lastNumbers(ts.ReadFile(args[0]))
	if a == nil || b == nil || *a != *b {
		ts.Fatalf("%v is not %v", a, b)
	}
}
