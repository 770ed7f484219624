package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

const (
	memoryEnv   = "LEAT_BENCH_MEMORY" // the database, for the process that is measured
	memoryLimit = 200                 // MiB
	memorySlots = 1000                // prefetch
)

// BenchmarkSQLiteMemory is a backlog of 1 KiB messages in SQLite behind a
// handler of 50 ms: 256 at once, 1,000 held. It fails if a process of its own
// needs more than 200 MiB for that. With LEAT_SOAK there are 1,000,000
// messages for 60 s, else 20,000 for 3 s.
func BenchmarkSQLiteMemory(b *testing.B) {
	backlog, lasts := 20_000, 3*time.Second
	if os.Getenv("LEAT_SOAK") != "" {
		backlog, lasts = 1_000_000, time.Minute
	}
	path := filepath.Join(b.TempDir(), "bench.db")
	t, err := sql.OpenSQLite(sql.Options{Path: path})
	if err == nil {
		err = errors.Join(fillSQLite(b.Context(), t, backlog), t.Close(b.Context()))
	}
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestMemoryProcess$", "-test.v")
	cmd.Env = append(os.Environ(), memoryEnv+"="+path+"\n"+lasts.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " is "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(v, name)
		}
	}
}

// TestMemoryProcess is the process that is measured.
func TestMemoryProcess(t *testing.T) {
	t.Parallel()
	path, lasts, _ := strings.Cut(os.Getenv(memoryEnv), "\n")
	if path == "" {
		t.Skip("it is for the benchmark to start")
	}
	d, err := time.ParseDuration(lasts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	tr, err := sql.OpenSQLite(sql.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	p := transport.Policy{Group: topic, Concurrency: concurrency, Prefetch: memorySlots}.Defaults(topic, tr.Capabilities())
	p.Middleware = middleware.Default(p)
	var handled atomic.Int64
	r := runtime.NewRouter(runtime.Options{})
	err = r.Consume(topic, tr, topic, func(msg *message.Message) ([]*message.Message, error) {
		handled.Add(1)
		select {
		case <-time.After(10 * work):
		case <-msg.Context().Done():
			return nil, msg.Context().Err()
		}
		return nil, nil
	}, p)
	if err == nil {
		err = r.Run(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	peak, err := peakMemory()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("msg/s is %.0f\nMiB-peak is %.1f\n", float64(handled.Load())/d.Seconds(), peak)
	if peak > memoryLimit {
		t.Errorf("peak of the resident memory is %.0f MiB, at most %d is right", peak, memoryLimit)
	}
}

// peakMemory is the largest resident size this process has had, in MiB.
func peakMemory() (float64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.Join(errors.New("no VmHWM in /proc/self/status"), lines.Err())
}
