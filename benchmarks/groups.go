package main

import (
	"fmt"
	"slices"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"

	"github.com/leat-io/leat/benchmarks/harness"
)

// groups are the tables of `make bench`, in their order.
func groups() []harness.Group {
	return append([]harness.Group{bareGroup(), chainGroup(), messageGroup(), timeoutGroup(), stragglerGroup(), fanOutGroup()}, slices.Concat(sqliteGroups(), postgresGroups(), mariadbGroups(), kafkaGroups(), rabbitGroups())...)
}

func bareGroup() harness.Group {
	const made, rest = "a message, its payload and metadata map", "Receive + message + Settle, no engine"
	bare := func() (transport.Policy, error) { return policy(), nil }
	return harness.Group{
		ID: "bare", Name: "engine, no middleware: 1,000 keys, 256 at once, handler does nothing", Unit: "msg", N: slice,
		Cases: []harness.Case{
			{Name: "Watermill Router, GoChannel", Run: goChannel(0, bareLinks)},
			{Name: "Watermill Router, stub subscriber", Run: stubChannel(0, bareLinks)},
			{Name: "Leat, 0 headers", Run: engine(0, bare)},
			{Name: "Leat, 3 headers", Run: engine(3, bare)},
			{Name: "Receive + Settle, no engine", Run: noEngine(0, func(*transport.Delivery) {})},
			{Name: rest, Run: noEngine(0, makeMessage)},
			{Name: rest + ", 3 headers", Run: noEngine(3, makeMessage)},
			{Name: made, Run: loop(func() { harness.Sink = copied(0) })},
		},
		Targets: []harness.Target{
			{Case: "Leat, 0 headers", Against: made, What: "≤ 300 ns beyond making " + made, Met: more(300)},
			{Case: "Leat, 0 headers", Against: rest, What: "≤ 300 ns of the engine alone, beyond " + rest, Met: more(300)},
			{Case: "Leat, 0 headers", What: "≥ 6x Watermill's Router on GoChannel", Met: speed(6)},
			{Case: "Leat, 0 headers", What: beyond(0, 1), Met: allocs(0, 1)},
			{Case: "Leat, 3 headers", What: beyond(3, 1), Met: allocs(3, 1)},
		},
	}
}

func chainGroup() harness.Group {
	chain := func() (transport.Policy, error) { return withDefaultChain(policy(), nil) }
	dedup := func() (transport.Policy, error) { return withDefaultChain(policy(), middleware.NewMemoryDedup(0)) }
	return harness.Group{
		ID: "chain", Name: "engine, default chain: as above", Unit: "msg", N: slice,
		Cases: []harness.Case{
			{Name: "Watermill Router, GoChannel, 5 middlewares", Run: goChannel(0, fiveLinks)},
			{Name: "Watermill Router, stub subscriber, 5 middlewares", Run: stubChannel(0, fiveLinks)},
			{Name: "Leat, 0 headers", Run: engine(0, chain)},
			{Name: "Leat, 3 headers", Run: engine(3, chain)},
			{Name: "Leat, dedup in memory", Run: engine(0, dedup)},
		},
		Targets: []harness.Target{
			{Case: "Leat, 0 headers", What: "≤ 1,000 ns", Met: wall(1000)},
			{Case: "Leat, 0 headers", What: "≥ 6x Watermill's Router on GoChannel", Met: speed(6)},
			{Case: "Leat, 0 headers", What: "≤ 6 allocations", Met: func(r harness.Row) bool { return r.Allocs < 6.5 }},
		},
	}
}

func wall(ns float64) func(harness.Row) bool { return func(r harness.Row) bool { return r.Wall <= ns } }

// more is how much longer a case takes than the one it is held against.
func more(ns float64) func(harness.Row) bool {
	return func(r harness.Row) bool { return r.Wall*(1-r.Speed) <= ns }
}

func speed(x float64) func(harness.Row) bool { return func(r harness.Row) bool { return r.Speed >= x } }

func beyond(headers, n int) string {
	return fmt.Sprintf("≤ %d allocation beyond the message and its metadata map (%.0f)", n, own(headers))
}

func allocs(headers, n int) func(harness.Row) bool {
	return func(r harness.Row) bool { return r.Allocs < own(headers)+float64(n)+0.5 }
}
