package transporttest

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what came of one case.
type Result struct {
	Case     string
	Skip     string   // why it was not run; empty if it was
	Failures []string // none if it passed; [Run] leaves them to the test
	Failed   bool
	Took     time.Duration
}

// Report has a result for each case that was asked for, in the suite's order.
type Report []Result

// Skipped gives the reason of each case that was not run, by name.
func (r Report) Skipped() map[string]string {
	m := map[string]string{}
	for _, res := range r {
		if res.Skip != "" {
			m[res.Case] = res.Skip
		}
	}
	return m
}

// Failed gives the names of the cases that failed.
func (r Report) Failed() []string {
	var names []string
	for _, res := range r {
		if res.Failed {
			names = append(names, res.Case)
		}
	}
	return names
}

// String is a table of what was skipped and what failed, under a line that
// counts all.
func (r Report) String() string {
	skipped, failed := len(r.Skipped()), len(r.Failed())
	var b strings.Builder
	fmt.Fprintf(&b, "%d cases: %d passed, %d failed, %d skipped\n", len(r), len(r)-skipped-failed, failed, skipped)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, res := range r {
		switch {
		case res.Skip != "":
			fmt.Fprintf(w, "%s\tskipped\t%s\n", res.Case, res.Skip)
		case res.Failed:
			fmt.Fprintf(w, "%s\tFAILED\t%s\n", res.Case, summary(res.Failures))
		}
	}
	_ = w.Flush() // into memory
	return b.String()
}

// summary is the first failure in one line, without its stack.
func summary(failures []string) string {
	if len(failures) == 0 {
		return "see its subtest"
	}
	text := failures[0]
	if _, after, ok := strings.Cut(text, "Error:"); ok { // as testify writes it
		text = after
	}
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 160)]
}
