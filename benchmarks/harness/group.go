package harness

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Case is one program under measurement.
type Case struct {
	Name string
	// Run does n units of work, at least 1, and has m measure nothing else.
	Run func(m *Meter, n int) error
	// Part is for one that is far slower than the others: it does only so
	// manieth a part of the group's units. 0 is all of them.
	Part int
	// Skip says why it cannot be measured here; empty: it can.
	Skip string
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
	// Broker is the host:port of the server that all cases use. Its CPU time
	// is measured too where it runs on this machine. May be empty.
	Broker string
	// Skip says why none of it can be measured here; empty: it can.
	Skip string
	// Close gives up what cases keep from one round to the next. May be nil.
	Close func() error
}

// Target is a bound on one figure of a case.
type Target struct {
	Case string
	// Against is the case that Speed and Thrift of the row compare with; empty: the first.
	Against string
	What    string // as printed, such as "≤ 300 ns"
	Met     func(Row) bool
}

// Row is what a case came to, per unit: medians over the rounds.
type Row struct {
	Name           string
	Skip           string // why it has no figures
	Wall, Min, Max float64
	CPU, Broker    float64 // ns, as Wall is; of this process and of the broker
	Allocs, Bytes  float64
	Speed          float64 // how many times as fast as the first case, in the same round
	Thrift         float64 // how many times less CPU time than the first case, likewise

	rounds []Cost // per unit
}

// Run measures a group: all cases once in each round, one after the other.
// progress is told what begins.
func (g Group) Run(rounds int, progress func(string)) (rows []Row, err error) {
	defer func() { err = errors.Join(err, g.close()) }()
	server := findServer(g.Broker)
	rows = make([]Row, len(g.Cases))
	for i, c := range g.Cases {
		rows[i] = Row{Name: c.Name, Skip: c.Skip}
	}
	for round := range rounds {
		for i := range g.Cases {
			// Each round begins with another case, so that none always runs after the same.
			at := (i + round) % len(g.Cases)
			c := g.Cases[at]
			if c.Skip != "" {
				continue
			}
			progress(fmt.Sprintf("%s: round %d of %d: %s", g.ID, round+1, rounds, c.Name))
			n := max(1, g.N/max(1, c.Part))
			m := Meter{server: server}
			if err := c.Run(&m, n); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", g.Name, c.Name, err)
			}
			rows[at].rounds = append(rows[at].rounds, m.total.per(n))
		}
	}
	for i := range rows {
		if rows[i].Skip == "" {
			rows[i].summarise()
			rows[i].against(rows[0])
		}
	}
	return rows, nil
}

func (g Group) close() error {
	if g.Close == nil {
		return nil
	}
	return g.Close()
}

func (r *Row) summarise() {
	of := func(f func(Cost) float64) []float64 {
		out := make([]float64, len(r.rounds))
		for i, c := range r.rounds {
			out[i] = f(c)
		}
		return out
	}
	wall := of(func(c Cost) float64 { return c.Wall })
	r.Wall, r.Min, r.Max = median(wall), slices.Min(wall), slices.Max(wall)
	r.CPU = median(of(func(c Cost) float64 { return c.CPU }))
	r.Broker = median(of(func(c Cost) float64 { return c.Broker }))
	r.Allocs = median(of(func(c Cost) float64 { return c.Allocs }))
	r.Bytes = median(of(func(c Cost) float64 { return c.Bytes }))
}

// against compares with another case, round by round.
func (r *Row) against(base Row) {
	speed, thrift := make([]float64, 0, len(r.rounds)), make([]float64, 0, len(r.rounds))
	for i := range min(len(r.rounds), len(base.rounds)) {
		speed = append(speed, base.rounds[i].Wall/r.rounds[i].Wall)
		thrift = append(thrift, base.rounds[i].CPU/r.rounds[i].CPU)
	}
	r.Speed, r.Thrift = median(speed), median(thrift)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 0:
		return (v[n/2-1] + v[n/2]) / 2
	default:
		return v[n/2]
	}
}

// Bench runs the cases as Go benchmarks.
func (g Group) Bench(b *testing.B) {
	b.Helper()
	if g.Skip != "" {
		b.Skip(g.Skip)
	}
	server := findServer(g.Broker)
	for _, c := range g.Cases {
		b.Run(c.Name, func(b *testing.B) {
			b.Helper()
			if c.Skip != "" {
				b.Skip(c.Skip)
			}
			m := Meter{server: server}
			if err := c.Run(&m, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			cost := m.total.per(b.N)
			b.ReportMetric(cost.Wall, "ns/op")
			b.ReportMetric(cost.CPU, "cpu-ns/op")
			b.ReportMetric(cost.Bytes, "B/op")
			b.ReportMetric(cost.Allocs, "allocs/op")
		})
	}
	if err := g.close(); err != nil {
		b.Error(err)
	}
}
