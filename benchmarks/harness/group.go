package harness

import (
	"fmt"
	"slices"
	"testing"
)

// Case is one program under measurement.
type Case struct {
	Name string
	// Run does n units of work, at least 1, and has m measure nothing else.
	Run func(m *Meter, n int) error
}

// Group is cases that are compared with the first of them.
type Group struct {
	ID    string // one word
	Name  string
	Unit  string // what is counted, such as "msg"
	N     int    // units of each case in a round
	Cases []Case
	// Targets are what the figures are held against.
	Targets []Target
}

// Target is a bound on one figure of a case.
type Target struct {
	Case string
	What string // as printed, such as "≤ 300 ns"
	Met  func(Row) bool
}

// Row is what a case came to, per unit: medians over the rounds.
type Row struct {
	Name           string
	Wall, Min, Max float64 // ns
	CPU            float64 // ns
	Allocs, Bytes  float64
	Speed          float64 // ratio to the first case, of the same round
}

// Run measures a group: all cases once in each round, one after the other.
// progress is told what begins.
func (g Group) Run(rounds int, progress func(string)) ([]Row, error) {
	costs := make([][]Cost, len(g.Cases))
	for round := range rounds {
		for i := range g.Cases {
			// Each round begins with another case, so that none always runs after the same.
			c := (i + round) % len(g.Cases)
			progress(fmt.Sprintf("round %d of %d: %s", round+1, rounds, g.Cases[c].Name))
			var m Meter
			if err := g.Cases[c].Run(&m, g.N); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", g.Name, g.Cases[c].Name, err)
			}
			costs[c] = append(costs[c], m.total)
		}
	}
	rows := make([]Row, len(g.Cases))
	for i, c := range g.Cases {
		per := func(f func(Cost) float64) []float64 {
			out := make([]float64, rounds)
			for r := range out {
				out[r] = f(costs[i][r]) / float64(g.N)
			}
			return out
		}
		wall := per(func(c Cost) float64 { return float64(c.Wall) })
		speed := make([]float64, rounds)
		for r := range speed {
			speed[r] = float64(costs[0][r].Wall) / float64(costs[i][r].Wall)
		}
		rows[i] = Row{
			Name: c.Name, Wall: median(wall), Min: slices.Min(wall), Max: slices.Max(wall),
			CPU:    median(per(func(c Cost) float64 { return float64(c.CPU) })),
			Allocs: median(per(func(c Cost) float64 { return float64(c.Allocs) })),
			Bytes:  median(per(func(c Cost) float64 { return float64(c.Bytes) })),
			Speed:  median(speed),
		}
	}
	return rows, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// Bench runs the cases as Go benchmarks.
func (g Group) Bench(b *testing.B) {
	b.Helper()
	for _, c := range g.Cases {
		b.Run(c.Name, func(b *testing.B) {
			b.Helper()
			var m Meter
			if err := c.Run(&m, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			n := float64(b.N)
			b.ReportMetric(float64(m.total.Wall)/n, "ns/op")
			b.ReportMetric(float64(m.total.CPU)/n, "cpu-ns/op")
			b.ReportMetric(float64(m.total.Bytes)/n, "B/op")
			b.ReportMetric(float64(m.total.Allocs)/n, "allocs/op")
		})
	}
}
