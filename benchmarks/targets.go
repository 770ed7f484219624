package main

import (
	"fmt"

	"github.com/leat-io/leat/benchmarks/harness"
)

// Cases of the tables about slow messages.
const (
	everyOne  = "every one takes 5 ms"
	oneIsSlow = "one in 1,000 takes 500 ms"
)

func stragglerTargets() []harness.Target {
	return []harness.Target{{Case: oneIsSlow, What: "≥ 0.8 of the speed without", Met: speed(0.8)}}
}

func atLeast(x float64) string { return fmt.Sprintf("≥ %gx the raw client", x) }

// thrift is met by a case that needs x times less CPU time.
func thrift(x float64) func(harness.Row) bool {
	return func(r harness.Row) bool { return r.Thrift >= x }
}
