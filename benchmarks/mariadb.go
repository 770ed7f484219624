package main

import "github.com/leat-io/leat/benchmarks/harness"

func mariadbGroups() []harness.Group {
	return on(mariadbBroker,
		mariadbConsume(), databaseBacklog(mariadbBroker, "MariaDB"), mariadbFanOut(),
		databaseStraggler(mariadbBroker, "MariaDB"), mariadbPublish(), mariadbSingles())
}

func mariadbConsume() harness.Group {
	const chain = "Leat, default chain"
	return harness.Group{
		ID: "mariadb-consume", Name: "MariaDB: consume 1 KiB, handler does nothing, half of a backlog of 100k", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "SELECT … SKIP LOCKED and DELETE by 100, 1 worker", Run: rawMariaDB},
			{Name: "Leat, no middleware", Run: leatDatabase(mariadbBroker, twice, load{bare: true})},
			{Name: chain, Run: leatDatabase(mariadbBroker, twice, load{})},
		},
		Targets: []harness.Target{{Case: chain, What: atLeast(1.5), Met: speed(1.5)}},
	}
}

func mariadbFanOut() harness.Group {
	const leat = "Leat, default chain"
	return harness.Group{
		ID: "mariadb-fanout", Name: "MariaDB: 5 ms handler, by key, 256 at once", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "256 goroutines that only sleep", Run: sleepers(concurrency)},
			{Name: leat, Run: leatDatabase(mariadbBroker, twice, load{handle: sleep})},
		},
		Targets: []harness.Target{{Case: leat, What: "≥ 0.65 of 256 ÷ the measured sleep", Met: speed(0.65)}},
	}
}

func mariadbPublish() harness.Group {
	const batched = "Leat, 100 in one Publish"
	return harness.Group{
		ID: "mariadb-publish", Name: "MariaDB: publish 1 KiB to one group, 100 at a time", Unit: "msg", N: 20_000,
		Cases: []harness.Case{
			{Name: "two INSERTs, 100 messages in a transaction", Run: rawMariaDBPublish(1, claim)},
			{Name: batched, Run: leatDatabasePublish(mariadbBroker, 1, claim)},
		},
		Targets: []harness.Target{{Case: batched, What: atLeast(1), Met: speed(1)}},
	}
}

func mariadbSingles() harness.Group {
	const coalesced = "Leat, 16 goroutines"
	return harness.Group{
		ID: "mariadb-singles", Name: "MariaDB: publish 1 KiB to one group, one at a time", Unit: "msg", N: 10_000,
		Cases: []harness.Case{
			{Name: "two INSERTs in a transaction, 16 goroutines", Run: rawMariaDBPublish(publishers, 1)},
			{Name: coalesced, Run: leatDatabasePublish(mariadbBroker, publishers, 1)},
		},
		Targets: []harness.Target{{Case: coalesced, What: atLeast(1.5), Met: speed(1.5)}},
	}
}
