package conformance

import (
	"context"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
)

// Run runs every case as a subtest of t, several at once, and logs the
// report. Cases that `go test -run` leaves out are not in it.
func Run(t *testing.T, o Options) Report {
	t.Helper()
	o.Short = o.Short || testing.Short()
	o.Soak = o.Soak || os.Getenv("LEAT_SOAK") != ""
	report := each(o, nil, func(s *suite, c testCase, res *Result) {
		t.Run(c.name, func(t *testing.T) {
			res.Case = c.name
			defer func() {
				if v := recover(); v != nil { // the other cases go on
					t.Errorf("panic: %v\n%s", v, debug.Stack())
				}
				res.Failed = t.Failed()
			}()
			if res.Skip = c.run(t, s); res.Skip != "" {
				t.Skip(res.Skip)
			}
		})
	})
	t.Logf("engine conformance\n%v", report)
	return report
}

// Check runs the cases named, or all of them, and fails no test. A case that
// hangs holds it up: what waits in the suite has a deadline, what waits in
// the transport may have none.
func Check(ctx context.Context, o Options, names ...string) Report {
	return each(o, names, func(s *suite, c testCase, res *Result) {
		res.Case = c.name
		res.Failures = record(ctx, c.name, func(tb TB) { //nolint:contextcheck // tb carries it
			res.Skip = c.run(tb, s)
		})
		res.Failed = len(res.Failures) > 0
	})
}

// suite is what all cases of one run share.
type suite struct {
	Options

	binary binary
}

// each runs the cases, several at a time, and gathers what came of them.
func each(o Options, names []string, run func(*suite, testCase, *Result)) Report {
	s := &suite{Options: o.withDefaults()}
	defer s.binary.remove()
	chosen := slices.DeleteFunc(cases(), func(c testCase) bool {
		return len(names) > 0 && !slices.Contains(names, c.name)
	})
	report := make(Report, len(chosen))
	next := make(chan int)
	var wg sync.WaitGroup
	for range s.Parallel {
		wg.Go(func() {
			for i := range next {
				began := time.Now()
				run(s, chosen[i], &report[i])
				report[i].Took = time.Since(began)
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	wg.Wait()
	return slices.DeleteFunc(report, func(res Result) bool { return res.Case == "" })
}
