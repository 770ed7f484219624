package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/transport/sql"
)

const (
	memoryEnv   = "LEAT_BENCH_MEMORY" // the place and the time, for the process that is measured
	memoryLimit = 200                 // MiB
	memorySlots = 1000                // prefetch
)

// place is where a backlog is; the group of its topic has the topic's name.
type place struct{ kind, at, topic string }

func (p place) open() (transport.Transport, error) {
	switch p.kind {
	case "sqlite":
		return sql.OpenSQLite(sql.Options{Path: p.at})
	case "kafka":
		return openKafka()
	case "rabbitmq":
		return amqp.Open(amqp.Options{URL: config.NewSecret(p.at)})
	default:
		return openLeat(p.at)
	}
}

// withBacklog runs fn with a place that has n messages.
func withBacklog(b broker, n int, fn func(place) error) error {
	switch b {
	case kafkaBroker:
		topics := newKafkaTopics()
		name, err := topics.with(8, n)
		if err == nil {
			topics.groups = append(topics.groups, name)
			err = fn(place{b.name, b.url(), name})
		}
		return errors.Join(err, topics.drop())
	case rabbitBroker:
		return inTopic("quorum", n, func(t transport.Transport, name string) error {
			return errors.Join(t.Close(background()), fn(place{b.name, b.url(), name}))
		})
	case postgresBroker, mariadbBroker:
		return inDatabase(b, func(url string) error { return filled(place{b.name, url, topic}, n, fn) })
	default:
		return inFile(func(path string) error { return filled(place{b.name, path, topic}, n, fn) })
	}
}

func filled(p place, n int, fn func(place) error) error {
	t, err := p.open()
	if err == nil {
		err = errors.Join(fillTopic(background(), t, n), t.Close(background()))
	}
	if err != nil {
		return err
	}
	return fn(p)
}

// BenchmarkMemory is a backlog of 1 KiB messages behind a handler of 50 ms:
// 256 at once, 1,000 held. It fails if a process of its own needs more than
// 200 MiB for that. With LEAT_SOAK there are 1,000,000 messages for 60 s, else
// 20,000 for 3 s.
func BenchmarkMemory(b *testing.B) {
	backlog, lasts := 20_000, 3*time.Second
	if os.Getenv("LEAT_SOAK") != "" {
		backlog, lasts = 1_000_000, time.Minute
	}
	for _, on := range []broker{{name: "sqlite"}, postgresBroker, mariadbBroker, kafkaBroker, rabbitBroker} {
		b.Run(on.name, func(b *testing.B) {
			if on.env != "" && on.missing() != "" {
				b.Skip(on.missing())
			}
			err := withBacklog(on, backlog, func(p place) error { return measureProcess(b, p, lasts) })
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// measureProcess reports what a process of its own prints.
func measureProcess(b *testing.B, p place, lasts time.Duration) error {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestMemoryProcess$", "-test.v")
	cmd.Env = append(os.Environ(), memoryEnv+"="+strings.Join([]string{p.kind, p.at, p.topic, lasts.String()}, "\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " is "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return err
			}
			b.ReportMetric(v, name)
		}
	}
	return nil
}

// TestMemoryProcess is the process that is measured.
func TestMemoryProcess(t *testing.T) {
	t.Parallel()
	words := strings.Split(os.Getenv(memoryEnv), "\n")
	if len(words) != 4 {
		t.Skip("it is for the benchmark to start")
	}
	p := place{words[0], words[1], words[2]}
	d, err := time.ParseDuration(words[3])
	if err != nil {
		t.Fatal(err)
	}
	handled, err := handleSlowly(p, d)
	if err != nil {
		t.Fatal(err)
	}
	peak, err := peakMemory()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("msg/s is %.0f\nMiB-peak is %.1f\n", float64(handled)/d.Seconds(), peak)
	if peak > memoryLimit {
		t.Errorf("peak of the resident memory is %.0f MiB, at most %d is right", peak, memoryLimit)
	}
}

// handleSlowly runs a worker for so long and counts its messages.
func handleSlowly(p place, lasts time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(background(), lasts)
	defer cancel()
	t, err := p.open()
	if err != nil {
		return 0, err
	}
	policy := transport.Policy{Group: p.topic, Concurrency: concurrency, Prefetch: memorySlots}.Defaults(p.topic, t.Capabilities())
	policy.Middleware = middleware.Default(policy)
	var handled atomic.Int64
	r := runtime.NewRouter(runtime.Options{})
	err = r.Consume(topic, t, p.topic, func(msg *message.Message) ([]*message.Message, error) {
		handled.Add(1)
		select {
		case <-time.After(10 * work):
		case <-msg.Context().Done():
			return nil, msg.Context().Err()
		}
		return nil, nil
	}, policy)
	if err == nil {
		err = r.Run(ctx)
	}
	return handled.Load(), errors.Join(err, t.Close(background()))
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
