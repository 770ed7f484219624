package main

import (
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/benchmarks/harness"
)

func rabbitGroups() []harness.Group {
	const quorum, classic = amqp091.QueueTypeQuorum, amqp091.QueueTypeClassic
	return on(rabbitBroker,
		rabbitConsume(quorum, 1.6, 1.4), rabbitConsume(classic, 1.1, 1),
		rabbitFanOut(quorum, 1.7), rabbitFanOut(classic, 1.6),
		rabbitStraggler(quorum), rabbitPublish(quorum),
	)
}

func rabbitConsume(kind string, ofBare, ofChain float64) harness.Group {
	const bare, chain = "Leat, no middleware", "Leat, default chain"
	return harness.Group{
		ID: "rabbitmq-consume-" + kind, Name: "RabbitMQ, " + kind + " queue: consume 1 KiB, handler does nothing", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "raw, prefetch 256, ack each", Run: rawRabbit(kind, 1, noOp)},
			{Name: "watermill-amqp, Router", Run: watermillRabbit(kind, 1, noOp), Part: 20},
			{Name: bare, Run: leatRabbit(kind, load{bare: true})},
			{Name: chain, Run: leatRabbit(kind, load{})},
		},
		Targets: []harness.Target{
			{Case: bare, What: atLeast(ofBare), Met: speed(ofBare)},
			{Case: chain, What: atLeast(ofChain), Met: speed(ofChain)},
		},
	}
}

func rabbitFanOut(kind string, ofRaw float64) harness.Group {
	const leat = "Leat, default chain"
	return harness.Group{
		ID: "rabbitmq-fanout-" + kind, Name: "RabbitMQ, " + kind + " queue: 5 ms handler, 256 at once, one channel", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "raw, 256 goroutines, prefetch 256, ack each", Run: rawRabbit(kind, concurrency, sleep)},
			{Name: "watermill-amqp, Router, 1 Subscribe", Run: watermillRabbit(kind, 1, sleep), Part: 200},
			{Name: "watermill-amqp, Router, 256 Subscribes", Run: watermillRabbit(kind, concurrency, sleep)},
			{Name: leat, Run: leatRabbit(kind, load{handle: sleep})},
		},
		Targets: []harness.Target{{Case: leat, What: atLeast(ofRaw), Met: speed(ofRaw)}},
	}
}

func rabbitStraggler(kind string) harness.Group {
	return harness.Group{
		ID: "rabbitmq-straggler", Name: "a slow message: RabbitMQ, " + kind + " queue, 5 ms handler, by key, 256 at once", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: everyOne, Run: leatRabbit(kind, load{handle: sleep})},
			{Name: oneIsSlow, Run: leatRabbit(kind, load{handle: sleepLongerAtTimes})},
		},
		Targets: stragglerTargets(),
	}
}

func rabbitPublish(kind string) harness.Group {
	const leat = "Leat, 10 goroutines, 100 in one Publish"
	return harness.Group{
		ID: "rabbitmq-publish", Name: "RabbitMQ, " + kind + " queue: confirmed publish of 1 KiB, 1,000 on their way", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "raw, deferred confirms", Run: rawRabbitPublish(kind)},
			{Name: leat, Run: leatRabbitPublish(kind, 10, claim)},
			{Name: "Leat, 1,000 in one Publish", Run: leatRabbitPublish(kind, 1, unconfirmed)},
		},
		Targets: []harness.Target{{Case: leat, What: atLeast(0.9), Met: speed(0.9)}},
	}
}
