package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"

	"github.com/leat-io/leat/benchmarks/harness"
)

const (
	kibibyte   = 1 << 10 // the payload of all these cases
	publishers = 16
	claim      = 100 // messages in a transaction of the raw client
)

func sqliteGroups() []harness.Group {
	var groups []harness.Group
	for _, sync := range []string{"normal", "full"} {
		groups = append(groups, sqliteConsume(sync), sqlitePublish(sync), sqliteSingles(sync))
	}
	return append(groups, sqliteBacklog(), sqliteStraggler())
}

func sqliteConsume(sync string) harness.Group {
	const bare, chain = "Leat, no middleware", "Leat, default chain"
	return harness.Group{
		ID: "sqlite-consume-" + sync, Name: "SQLite, synchronous=" + sync + ": consume 1 KiB, handler does nothing", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "DELETE … RETURNING by 100, by partition", Run: rawConsume(sync, 8)},
			{Name: "DELETE … RETURNING by 100, one partition", Run: rawConsume(sync, 1)},
			{Name: bare, Run: sqliteEngine(sync, 1, load{bare: true})},
			{Name: chain, Run: sqliteEngine(sync, 1, load{})},
		},
		Targets: []harness.Target{
			{Case: bare, What: "≥ 1.2x the raw loop", Met: speed(1.2)},
			{Case: chain, What: "≥ 1.0x the raw loop", Met: speed(1)},
		},
	}
}

func sqlitePublish(sync string) harness.Group {
	const batched = "Leat, 100 in one Publish"
	return harness.Group{
		ID: "sqlite-publish-" + sync, Name: "SQLite, synchronous=" + sync + ": publish 1 KiB to one group, 100 at a time", Unit: "msg", N: 20_000,
		Cases: []harness.Case{
			{Name: "two INSERTs, 100 messages in a transaction", Run: rawPublish(sync, claim)},
			{Name: batched, Run: sqliteProducer(sync, 1, claim)},
		},
		Targets: []harness.Target{{Case: batched, What: "≥ 0.9x", Met: speed(0.9)}},
	}
}

func sqliteSingles(sync string) harness.Group {
	const coalesced = "Leat, 16 goroutines"
	return harness.Group{
		ID: "sqlite-singles-" + sync, Name: "SQLite, synchronous=" + sync + ": publish 1 KiB to one group, one at a time", Unit: "msg", N: 5_000,
		Cases: []harness.Case{
			{Name: "two INSERTs in a transaction", Run: rawPublish(sync, 1)},
			{Name: "Leat, 1 goroutine", Run: sqliteProducer(sync, 1, 1)},
			{Name: coalesced, Run: sqliteProducer(sync, publishers, 1)},
		},
		Targets: []harness.Target{{Case: coalesced, What: "≥ 2x", Met: speed(2)}},
	}
}

func sqliteBacklog() harness.Group {
	const large = "50,000 in the middle of 1,000,000"
	return harness.Group{
		ID: "sqlite-backlog", Name: "SQLite: consume 1 KiB, default chain, with a backlog", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "50,000 of 50,000", Run: sqliteEngine("full", 1, load{})},
			{Name: "50,000 in the middle of 250,000", Run: sqliteEngine("full", 5, load{})},
			{Name: large, Run: sqliteEngine("full", 20, load{})},
		},
		Targets: []harness.Target{{Case: large, What: "≥ 0.8x of the smallest", Met: speed(0.8)}},
	}
}

func sqliteStraggler() harness.Group {
	return harness.Group{
		ID: "sqlite-straggler", Name: "a slow message: SQLite, 5 ms handler, by key, 256 at once", Unit: "msg", N: 200_000,
		Cases: []harness.Case{
			{Name: everyOne, Run: inSQLite(sleep)},
			{Name: oneIsSlow, Run: inSQLite(sleepLongerAtTimes)},
		},
		Targets: stragglerTargets(),
	}
}

// inFile runs fn with a file in a folder of its own.
func inFile(fn func(path string) error) error {
	dir, err := os.MkdirTemp("", "leat-bench-")
	if err != nil {
		return err
	}
	return errors.Join(fn(filepath.Join(dir, "bench.db")), os.RemoveAll(dir))
}

func kibibytes(from, n int) []*message.Message {
	body := []byte(strings.Repeat("x", kibibyte))
	msgs := make([]*message.Message, n)
	for i := range msgs {
		msgs[i] = newMessage(from+i, 0)
		msgs[i].Payload = body
	}
	return msgs
}

// fillTopic publishes n messages of 1 KiB.
func fillTopic(ctx context.Context, t transport.Transport, n int) error {
	if err := t.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: topic}); err != nil {
		return err
	}
	p, err := t.OpenProducer(ctx)
	if err != nil {
		return err
	}
	const batch = 1000
	for at := 0; at < n; at += batch {
		if err := p.Publish(ctx, topic, kibibytes(at, min(batch, n-at))...); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}

// sqliteEngine measures the engine on n messages in the middle of times·n.
func sqliteEngine(sync string, times int, l load) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inFile(func(path string) error {
			t, err := sql.OpenSQLite(sql.Options{Path: path, Synchronous: sync})
			if err != nil {
				return err
			}
			if err := fillTopic(background(), t, times*n); err != nil {
				return err
			}
			return l.drain(m, t, topic, n, times)
		})
	}
}

func sqliteProducer(mode string, goroutines, batch int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inFile(func(path string) error {
			t, err := sql.OpenSQLite(sql.Options{Path: path, Synchronous: mode})
			if err != nil {
				return err
			}
			if err := fillTopic(background(), t, 1); err != nil {
				return err
			}
			return publish(m, t, topic, n, goroutines, batch)
		})
	}
}
