package main

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/benchmarks/harness"
)

func postgresGroups() []harness.Group {
	groups := []harness.Group{postgresConsume("10k", 5_000), postgresConsume("100k", 50_000)}
	if huge() {
		groups = append(groups, postgresConsume("1M", 500_000))
	}
	return on(postgresBroker, append(groups,
		databaseBacklog(postgresBroker, "PostgreSQL"), postgresFanOut(),
		databaseStraggler(postgresBroker, "PostgreSQL"), postgresPublish(), postgresSingles())...)
}

// noOp is the handler that does nothing.
func noOp(*message.Message) error { return nil }

func postgresConsume(backlog string, n int) harness.Group {
	const raw, four, jobs = "DELETE … SKIP LOCKED … RETURNING by 100, 1 worker", "the same, 4 workers", "River, 2,000 workers"
	const bare, chain = "Leat, no middleware", "Leat, default chain"
	return harness.Group{
		ID: "postgres-consume-" + backlog, Name: "PostgreSQL: consume 1 KiB, handler does nothing, half of a backlog of " + backlog, Unit: "msg", N: n,
		Cases: []harness.Case{
			{Name: raw, Run: rawPostgres(1, claimPostgres)},
			{Name: four, Run: rawPostgres(4, claimPostgres)},
			{Name: "in one statement, by ctid, 1 worker", Run: rawPostgres(1, claimPostgresAtOnce)},
			{Name: jobs, Run: riverQueue(2000, noOp)},
			{Name: "watermill-sql, Router", Run: watermillPostgres(twice*max(5, n/2000), noOp), Part: max(5, n/2000)},
			{Name: bare, Run: leatDatabase(postgresBroker, twice, load{bare: true})},
			{Name: chain, Run: leatDatabase(postgresBroker, twice, load{})},
		},
		Targets: []harness.Target{
			{Case: chain, What: atLeast(1.6), Met: speed(1.6)},
			{Case: chain, Against: four, What: "≥ 0.85x 4 workers", Met: speed(0.85)},
			{Case: chain, Against: jobs, What: "≥ 4x River", Met: speed(4)},
		},
	}
}

// databaseBacklog shows what a larger backlog costs.
func databaseBacklog(b broker, name string) harness.Group {
	largest := 250
	times := []int{2, 10}
	if huge() {
		largest, times = 1000, append(times, 40)
	}
	g := harness.Group{
		ID: b.name + "-backlog", Name: name + ": consume 25,000 of 1 KiB, default chain, in the middle of a backlog", Unit: "msg", N: 25_000,
	}
	of := func(t int) string { return fmt.Sprintf("of %d,000", t*25) }
	for _, t := range times {
		g.Cases = append(g.Cases, harness.Case{Name: of(t), Run: leatDatabase(b, t, load{})})
	}
	g.Targets = []harness.Target{{Case: fmt.Sprintf("of %d,000", largest), What: "≥ 0.8x of the smallest", Met: speed(0.8)}}
	return g
}

func postgresFanOut() harness.Group {
	const leat, jobs = "Leat, default chain", "River, 256 workers"
	return harness.Group{
		ID: "postgres-fanout", Name: "PostgreSQL: 5 ms handler, by key, 256 at once", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "256 goroutines that only sleep", Run: sleepers(concurrency)},
			{Name: jobs, Run: riverQueue(concurrency, sleep)},
			{Name: leat, Run: leatDatabase(postgresBroker, twice, load{handle: sleep})},
		},
		Targets: []harness.Target{
			{Case: leat, What: "≥ 0.8 of 256 ÷ the measured sleep", Met: speed(0.8)},
			{Case: leat, Against: jobs, What: "≥ 3x River", Met: speed(3)},
		},
	}
}

func databaseStraggler(b broker, name string) harness.Group {
	return harness.Group{
		ID: b.name + "-straggler", Name: "a slow message: " + name + ", 5 ms handler, by key, 256 at once", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: everyOne, Run: leatDatabase(b, twice, load{handle: sleep})},
			{Name: oneIsSlow, Run: leatDatabase(b, twice, load{handle: sleepLongerAtTimes})},
		},
		Targets: stragglerTargets(),
	}
}

func postgresPublish() harness.Group {
	const batched = "Leat, 100 in one Publish"
	return harness.Group{
		ID: "postgres-publish", Name: "PostgreSQL: publish 1 KiB to one group, 100 at a time", Unit: "msg", N: 20_000,
		Cases: []harness.Case{
			{Name: "two INSERTs, 100 messages in a transaction", Run: rawPostgresPublish(1, claim)},
			{Name: batched, Run: leatDatabasePublish(postgresBroker, 1, claim)},
		},
		Targets: []harness.Target{{Case: batched, What: atLeast(1), Met: speed(1)}},
	}
}

func postgresSingles() harness.Group {
	const coalesced = "Leat, 16 goroutines"
	return harness.Group{
		ID: "postgres-singles", Name: "PostgreSQL: publish 1 KiB to one group, one at a time", Unit: "msg", N: 10_000,
		Cases: []harness.Case{
			{Name: "two INSERTs in a transaction, 16 goroutines", Run: rawPostgresPublish(publishers, 1)},
			{Name: coalesced, Run: leatDatabasePublish(postgresBroker, publishers, 1)},
		},
		Targets: []harness.Target{{Case: coalesced, What: atLeast(1.5), Met: speed(1.5)}},
	}
}
