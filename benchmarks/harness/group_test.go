package harness_test

import (
	"strings"
	"testing"

	"github.com/leat-io/leat/benchmarks/harness"
)

// takes is a case that needs so much for a unit, and half of it in CPU time.
func takes(ns float64) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		m.Add(harness.Cost{Wall: ns * float64(n), CPU: ns * float64(n) / 2})
		return nil
	}
}

func group() harness.Group {
	fast := func(x float64) func(harness.Row) bool { return func(r harness.Row) bool { return r.Speed >= x } }
	return harness.Group{
		ID: "some", Name: "some work", Unit: "msg", N: 100,
		Cases: []harness.Case{
			{Name: "first", Run: takes(100)},
			{Name: "slow", Run: takes(2000), Part: 1000},
			{Name: "ours", Run: takes(50)},
			{Name: "absent", Run: takes(1), Skip: "not installed"},
		},
		Targets: []harness.Target{
			{Case: "ours", What: "twice the first", Met: fast(2)},
			{Case: "ours", What: "thrice the first", Met: fast(3)},
			{Case: "ours", Against: "slow", What: "40 times the slow one", Met: fast(40)},
			{Case: "ours", Against: "absent", What: "as fast", Met: fast(1)},
		},
	}
}

// TestGroup: ratios are those of a unit, whatever the number of units was.
func TestGroup(t *testing.T) {
	t.Parallel()
	g := group()
	closed := false
	g.Close = func() error { closed = true; return nil }
	rows, err := g.Run(3, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if !closed {
		t.Error("not closed")
	}
	if got := rows[1]; got.Wall != 2000 || got.Speed != 0.05 {
		t.Errorf("slow: %+v", got)
	}
	if got := rows[2]; got.Wall != 50 || got.CPU != 25 || got.Speed != 2 || got.Thrift != 2 {
		t.Errorf("ours: %+v", got)
	}
}

// TestPrint: each target is held against the case it names.
func TestPrint(t *testing.T) {
	t.Parallel()
	g := group()
	rows, err := g.Run(1, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := g.Print(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"absent: skipped: not installed",
		"twice the first: met", "thrice the first: MISSED",
		"40 times the slow one: met (40.00x as fast, 40.00x less CPU time)",
		"as fast: not measured",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	g.Targets = []harness.Target{{Case: "nobody"}}
	if err := g.Print(&out, rows); err == nil {
		t.Error("a target of a case that is not there")
	}
}
