package transporttest

import (
	"context"
	"os"
	"testing"
)

// Run runs every case as a subtest of t, several at once, and logs the report.
// Cases that `go test -run` leaves out are not in it.
func Run(t *testing.T, o Options) Report {
	t.Helper()
	o.Short = o.Short || testing.Short()
	o.Soak = o.Soak || os.Getenv("LEAT_SOAK") != ""
	o = o.withDefaults()
	report := RunCases(t, o.Parallel, all(&o))
	t.Logf("transport conformance\n%v", report)
	return report
}

// Check runs the cases named, or all of them, and fails no test. A case that
// hangs holds it up: what waits in the suite has a deadline, what waits in
// the transport may have none.
func Check(ctx context.Context, o Options, names ...string) Report {
	o = o.withDefaults()
	return CheckCases(ctx, o.Parallel, all(&o), names...) //nolint:contextcheck // cases have their own
}

func all(o *Options) []Case {
	var out []Case
	for _, c := range cases() {
		if one := c.of(o); one.Alone || !o.OnlyAlone {
			out = append(out, one)
		}
	}
	return out
}
