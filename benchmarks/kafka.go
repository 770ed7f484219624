package main

import (
	"errors"
	"fmt"

	"github.com/leat-io/leat/runtime/transport"

	"github.com/leat-io/leat/benchmarks/harness"
)

func kafkaGroups() []harness.Group {
	return on(kafkaBroker,
		kafkaConsume(1), kafkaConsume(8),
		kafkaFanOut(concurrency, 100_000, 0.9, 1.1), kafkaFanOut(4*concurrency, 200_000, 0.8, 3),
		kafkaSpread(), kafkaStraggler(), kafkaPublish(),
	)
}

func kafkaConsume(partitions int32) harness.Group {
	const bare, chain = "Leat, no middleware", "Leat, default chain"
	topics := newKafkaTopics()
	return harness.Group{
		ID: fmt.Sprintf("kafka-consume-%d", partitions), Name: fmt.Sprintf("Kafka: consume 1 KiB, handler does nothing, by key, 256 at once; partitions: %d", partitions), Unit: "msg", N: 200_000,
		Cases: []harness.Case{
			{Name: "franz-go's poll loop", Run: rawKafka(topics, partitions)},
			{Name: "watermill-kafka, Router", Run: watermillKafka(topics, partitions, noOp)},
			{Name: bare, Run: leatKafka(topics, partitions, load{bare: true})},
			{Name: chain, Run: leatKafka(topics, partitions, load{})},
		},
		Targets: []harness.Target{
			{Case: bare, What: "≥ 0.9x the poll loop", Met: speed(0.9)},
			{Case: chain, What: "≥ 0.7x", Met: speed(0.7)},
		},
		Close: topics.drop,
	}
}

// kafkaFanOut is held against the limit, and against Parallel Consumer.
func kafkaFanOut(slots, n int, ofLimit, ofParallel float64) harness.Group {
	const leat, stock, tuned = "Leat, default chain", "Parallel Consumer, stock JVM", "Parallel Consumer, tuned JVM"
	topics := newKafkaTopics()
	one := &parallelConsumer{topics: topics}
	other := &parallelConsumer{topics: topics, java: []string{"-Xms2g", "-Xmn1g", "-XX:+UseParallelGC"}}
	g := harness.Group{
		ID: fmt.Sprintf("kafka-fanout-%d", slots), Name: fmt.Sprintf("Kafka, 1 partition: 5 ms handler, by key, 1,000 keys, %d at once", slots), Unit: "msg", N: n,
		Cases: []harness.Case{
			{Name: fmt.Sprintf("%d goroutines that only sleep", slots), Run: sleepers(slots)},
			{Name: stock, Run: one.run(slots), Skip: parallelMissing()},
			{Name: tuned, Run: other.run(slots), Skip: parallelMissing()},
			{Name: "watermill-kafka, Router", Run: watermillKafka(topics, 1, sleep), Part: n / 400},
			{Name: leat, Run: leatKafka(topics, 1, load{slots: slots, handle: sleep})},
		},
		Targets: []harness.Target{{Case: leat, What: fmt.Sprintf("≥ %g of %d ÷ the measured sleep", ofLimit, slots), Met: speed(ofLimit)}},
		Close:   func() error { return errors.Join(one.stop(), other.stop(), topics.drop()) },
	}
	for _, jvm := range []string{stock, tuned} {
		g.Targets = append(g.Targets,
			harness.Target{Case: leat, Against: jvm, What: fmt.Sprintf("≥ %gx %s", ofParallel, jvm), Met: speed(ofParallel)},
			harness.Target{Case: leat, Against: jvm, What: "≤ 1/5 of its CPU time", Met: thrift(5)},
		)
	}
	return g
}

// kafkaSpread shows whether all partitions are worked on at a time.
func kafkaSpread() harness.Group {
	const byKey, byPartition = "Leat, by key", "Leat, by partition, 8 at once"
	topics := newKafkaTopics()
	return harness.Group{
		ID: "kafka-spread", Name: "Kafka, 8 partitions: 5 ms handler, 256 at once", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "256 goroutines that only sleep", Run: sleepers(concurrency)},
			{Name: "watermill-kafka, Router", Run: watermillKafka(topics, 8, sleep), Part: 50},
			{Name: byKey, Run: leatKafka(topics, 8, load{handle: sleep})},
			{Name: byPartition, Run: leatKafka(topics, 8, load{handle: sleep, order: transport.OrderPartition}), Part: 50},
		},
		Targets: []harness.Target{
			{Case: byKey, What: "≥ 0.8 of 256 ÷ the measured sleep", Met: speed(0.8)},
			{Case: byPartition, Against: "watermill-kafka, Router", What: "≥ 0.9x Watermill", Met: speed(0.9)},
		},
		Close: topics.drop,
	}
}

func kafkaStraggler() harness.Group {
	topics := newKafkaTopics()
	return harness.Group{
		ID: "kafka-straggler", Name: "a slow message: Kafka, 1 partition, 5 ms handler, by key, 256 at once", Unit: "msg", N: 100_000,
		Cases: []harness.Case{
			{Name: everyOne, Run: leatKafka(topics, 1, load{handle: sleep})},
			{Name: oneIsSlow, Run: leatKafka(topics, 1, load{handle: sleepLongerAtTimes})},
		},
		Targets: stragglerTargets(),
		Close:   topics.drop,
	}
}

func kafkaPublish() harness.Group {
	const leat = "Leat, 100 in one Publish"
	topics := newKafkaTopics()
	return harness.Group{
		ID: "kafka-publish", Name: "Kafka: confirmed publish of 1 KiB, 100 at a time", Unit: "msg", N: 50_000,
		Cases: []harness.Case{
			{Name: "ProduceSync of 100", Run: rawKafkaPublish(topics, claim)},
			{Name: leat, Run: leatKafkaPublish(topics, 1, claim)},
		},
		Targets: []harness.Target{{Case: leat, What: "≥ 0.9x", Met: speed(0.9)}},
		Close:   topics.drop,
	}
}
