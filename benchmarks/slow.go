package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/sql"

	"github.com/leat-io/leat/benchmarks/harness"
)

// work is what the handlers of these tables take.
const (
	work     = 5 * time.Millisecond
	slowWork = 500 * time.Millisecond
)

// stragglerGroup shows what one slow message in 1,000 costs all others. At
// most 0.91 can be had: such a message keeps one of the 256 slots for as long
// as a hundred others do.
func stragglerGroup() harness.Group {
	return harness.Group{
		ID: "straggler", Name: "a slow message: memory, 5 ms handler, by key, 256 at once", Unit: "msg", N: 200_000,
		Cases: []harness.Case{
			{Name: everyOne, Run: inMemory(sleep)},
			{Name: oneIsSlow, Run: inMemory(sleepLongerAtTimes)},
		},
		Targets: stragglerTargets(),
	}
}

// fanOutGroup shows how much of 256 handlers at once a transport keeps busy.
func fanOutGroup() harness.Group {
	return harness.Group{
		ID: "fanout", Name: "5 ms handler, by key, 256 at once", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "256 goroutines that only sleep", Run: sleepers(concurrency)},
			{Name: "Leat, memory", Run: inMemory(sleep)},
			{Name: "Leat, SQLite", Run: inSQLite(sleep)},
		},
		Targets: []harness.Target{{Case: "Leat, SQLite", What: "≥ 0.65 of 256 ÷ the measured sleep", Met: speed(0.65)}},
	}
}

func sleep(*message.Message) error {
	time.Sleep(work)
	return nil
}

// sleepLongerAtTimes is slow for one message of each thousand, each time for
// that of another key.
func sleepLongerAtTimes(m *message.Message) error {
	i, err := strconv.Atoi(strings.TrimPrefix(m.UUID, "id-"))
	if err != nil {
		return err
	}
	if round := i / keys; i%keys == (round*389)%keys {
		time.Sleep(slowWork)
		return nil
	}
	return sleep(m)
}

// sleepers is the limit: as many goroutines as there are slots, with nothing
// to do but the handler's sleep.
func sleepers(slots int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		var wg sync.WaitGroup
		m.Start()
		for g := range slots {
			wg.Go(func() {
				for range n/slots + min(1, max(0, n%slots-g)) {
					time.Sleep(work)
				}
			})
		}
		wg.Wait()
		m.Stop()
		return nil
	}
}

func inMemory(handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return consumeDefault(m, memory.New(topic, memory.Options{MaxMessages: n}), n, handle)
	}
}

func inSQLite(handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		dir, err := os.MkdirTemp("", "leat-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // the system's temporary files
		t, err := sql.OpenSQLite(sql.Options{Path: filepath.Join(dir, "bench.db")})
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		return consumeDefault(m, t, n, handle)
	}
}

func consumeDefault(m *harness.Meter, t transport.Transport, n int, handle func(*message.Message) error) error {
	p, err := withDefaultChain(policy(), nil)
	if err != nil {
		return err
	}
	return consume(m, t, p, n, 0, handle)
}
