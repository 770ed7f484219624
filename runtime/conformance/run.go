package conformance

import (
	"context"
	"os"
	"testing"

	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// Run runs every case as a subtest of t, several at once, and logs the
// report. Cases that `go test -run` leaves out are not in it.
func Run(t *testing.T, o Options) Report {
	t.Helper()
	o.Short = o.Short || testing.Short()
	o.Soak = o.Soak || os.Getenv("LEAT_SOAK") != ""
	s := &suite{Options: o.withDefaults()}
	defer s.binary.remove()
	report := transporttest.RunCases(t, s.Parallel, s.all())
	t.Logf("engine conformance\n%v", report)
	return report
}

// Check runs the cases named, or all of them, and fails no test. A case that
// hangs holds it up: what waits in the suite has a deadline, what waits in
// the transport may have none.
func Check(ctx context.Context, o Options, names ...string) Report {
	s := &suite{Options: o.withDefaults()}
	defer s.binary.remove()
	return transporttest.CheckCases(ctx, s.Parallel, s.all(), names...) //nolint:contextcheck // cases have their own
}

// suite is what all cases of one run share.
type suite struct {
	Options

	binary binary
}

func (s *suite) all() []transporttest.Case {
	var out []transporttest.Case
	for _, c := range cases() {
		if one := c.of(s); one.Alone || !s.OnlyAlone {
			out = append(out, one)
		}
	}
	return out
}
