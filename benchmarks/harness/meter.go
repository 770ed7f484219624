// Package harness compares programs with each other in one process: cases of
// a group take turns for some rounds, and what counts are medians and the
// ratios within a round, since the machine is never the same for long.
package harness

import (
	goruntime "runtime"
	"syscall"
	"time"
)

// Meter measures what happens between Start and Stop, any number of times. It
// counts the whole process.
type Meter struct {
	server *server // nil: none that can be seen
	total  Cost
	began  Cost
}

// Cost is what some work took; times are in ns.
type Cost struct {
	Wall          float64
	CPU           float64 // of all threads, the garbage collector's among them
	Broker        float64 // CPU time of the broker; 0 where it cannot be seen
	Allocs, Bytes float64
}

var epoch = time.Now()

// Start begins to measure, with a heap that was just collected.
func (m *Meter) Start() {
	goruntime.GC()
	m.StartWarm()
}

// StartWarm begins to measure in the middle of work, which must not get ahead
// meanwhile: so nothing is collected before.
func (m *Meter) StartWarm() {
	m.began = Cost{Broker: m.server.cpu()}
	m.began.Allocs, m.began.Bytes = allocated()
	m.began.CPU, m.began.Wall = cpu(), wall()
}

// Stop ends what Start or StartWarm began.
func (m *Meter) Stop() {
	c := Cost{Wall: wall() - m.began.Wall, CPU: cpu() - m.began.CPU}
	allocs, bytes := allocated()
	c.Allocs, c.Bytes = allocs-m.began.Allocs, bytes-m.began.Bytes
	c.Broker = m.server.cpu() - m.began.Broker
	m.Add(c)
}

// Add counts what was measured elsewhere, such as in a process of its own.
func (m *Meter) Add(c Cost) {
	m.total.Wall += c.Wall
	m.total.CPU += c.CPU
	m.total.Broker += c.Broker
	m.total.Allocs += c.Allocs
	m.total.Bytes += c.Bytes
}

func allocated() (times, bytes float64) {
	var mem goruntime.MemStats
	goruntime.ReadMemStats(&mem)
	return float64(mem.Mallocs), float64(mem.TotalAlloc)
}

func wall() float64 { return float64(time.Since(epoch)) }

func (c Cost) per(units int) Cost {
	n := float64(units)
	return Cost{Wall: c.Wall / n, CPU: c.CPU / n, Broker: c.Broker / n, Allocs: c.Allocs / n, Bytes: c.Bytes / n}
}

func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // never for RUSAGE_SELF
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// Sink keeps what is stored here from being optimised away.
var Sink any
