package transporttest

import (
	"context"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Case is one case of a suite. [Run] is made of them, and so may be suites of
// your own.
type Case struct {
	Name string
	// Alone: it runs after all others, and nothing beside it.
	Alone bool
	// Run returns why the case cannot be run here; empty if it was run.
	Run func(tb TB) (skip string)
}

// RunCases runs each case as a subtest of t, so many at once. Those that
// `go test -run` leaves out are not in the report.
func RunCases(t *testing.T, parallel int, cases []Case) Report {
	t.Helper()
	return each(parallel, cases, func(c Case, res *Result) {
		t.Run(c.Name, func(t *testing.T) {
			res.Case = c.Name
			defer func() {
				if v := recover(); v != nil { // the other cases go on
					t.Errorf("panic: %v\n%s", v, debug.Stack())
				}
				res.Failed = t.Failed()
			}()
			if res.Skip = c.Run(t); res.Skip != "" {
				t.Skip(res.Skip)
			}
		})
	})
}

// CheckCases runs the cases named, or all of them, and fails no test.
func CheckCases(ctx context.Context, parallel int, cases []Case, names ...string) Report {
	chosen := slices.DeleteFunc(slices.Clone(cases), func(c Case) bool {
		return len(names) > 0 && !slices.Contains(names, c.Name)
	})
	return each(parallel, chosen, func(c Case, res *Result) {
		res.Case = c.Name
		res.Failures = record(ctx, c.Name, func(tb TB) {
			res.Skip = c.Run(tb)
		})
		res.Failed = len(res.Failures) > 0
	})
}

// each runs the cases, several at a time, and gathers what came of them.
func each(parallel int, cases []Case, run func(Case, *Result)) Report {
	report := make(Report, len(cases))
	timed := func(i int) {
		began := time.Now()
		run(cases[i], &report[i])
		report[i].Took = time.Since(began)
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for i := range next {
				timed(i)
			}
		})
	}
	for i, c := range cases {
		if !c.Alone {
			next <- i
		}
	}
	close(next)
	wg.Wait()
	for i, c := range cases {
		if c.Alone {
			timed(i)
		}
	}
	return slices.DeleteFunc(report, func(res Result) bool { return res.Case == "" })
}

// Goroutines gives the stacks of those that were started under a label of
// package runtime/pprof, which is inherited by all that they start.
func Goroutines(label string) string {
	var b strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return fmt.Sprint("profile of goroutines: ", err)
	}
	var left []string
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, label) {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
