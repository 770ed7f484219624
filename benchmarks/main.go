// Command benchmarks measures Leat against its peers, in one process and in
// turns, and prints medians and ratios. LEAT_BENCH_ROUNDS is the number of
// rounds (5), LEAT_BENCH_ONLY a regular expression of the tables to make,
// LEAT_BENCH_HUGE asks for backlogs of a million. Brokers are those that
// LEAT_TEST_* name; without one, its tables are skipped.
package main

import (
	"fmt"
	"os"
	"regexp"
	goruntime "runtime"
	"strconv"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run() error {
	rounds := 5
	if v := os.Getenv("LEAT_BENCH_ROUNDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return fmt.Errorf("LEAT_BENCH_ROUNDS: %q is not a number of rounds", v)
		}
		rounds = n
	}
	only, err := regexp.Compile(os.Getenv("LEAT_BENCH_ONLY"))
	if err != nil {
		return fmt.Errorf("LEAT_BENCH_ONLY: %w", err)
	}
	fmt.Printf("%s %s/%s, %d cores, load average %s, medians of %d interleaved rounds\n",
		goruntime.Version(), goruntime.GOOS, goruntime.GOARCH, goruntime.NumCPU(), loadAverage(), rounds)
	for _, g := range groups() {
		if !only.MatchString(g.ID) {
			continue
		}
		if g.Skip != "" {
			fmt.Printf("\n%s\n  skipped: %s\n", g.Name, g.Skip)
			continue
		}
		rows, err := g.Run(rounds, func(s string) { fmt.Fprintln(os.Stderr, s) })
		if err != nil {
			return err
		}
		if err := g.Print(os.Stdout, rows); err != nil {
			return err
		}
	}
	fmt.Printf("\nload average at the end %s\n", loadAverage())
	return nil
}

// loadAverage is that of the last minute; what else the machine did is in the
// figures.
func loadAverage() string {
	var one string
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }() // only read
	if _, err := fmt.Fscan(f, &one); err != nil {
		return "unknown"
	}
	return one
}
