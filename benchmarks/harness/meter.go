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
	total Cost
	began Cost
}

// Cost is what some work took.
type Cost struct {
	Wall   time.Duration
	CPU    time.Duration // of all threads, the garbage collector's among them
	Allocs uint64
	Bytes  uint64
}

var epoch = time.Now()

// Start begins to measure, with a heap that was just collected.
func (m *Meter) Start() {
	goruntime.GC()
	m.began = now()
}

// Stop ends what Start began.
func (m *Meter) Stop() {
	n := now()
	m.total.Wall += n.Wall - m.began.Wall
	m.total.CPU += n.CPU - m.began.CPU
	m.total.Allocs += n.Allocs - m.began.Allocs
	m.total.Bytes += n.Bytes - m.began.Bytes
}

func now() Cost {
	var mem goruntime.MemStats
	goruntime.ReadMemStats(&mem)
	return Cost{Wall: time.Since(epoch), CPU: cpu(), Allocs: mem.Mallocs, Bytes: mem.TotalAlloc}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // never for RUSAGE_SELF
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Sink keeps what is stored here from being optimised away.
var Sink any
