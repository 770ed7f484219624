package main

import (
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"

	"github.com/leat-io/leat/benchmarks/harness"
)

func openKafka() (transport.Transport, error) {
	return kafka.New(kafka.Options{Brokers: kafkaSeeds()}, nil)
}

func leatKafka(topics *kafkaTopics, partitions int32, l load) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		name, err := topics.with(partitions, twice*n)
		if err != nil {
			return err
		}
		t, err := openKafka()
		if err != nil {
			return err
		}
		l.group = topics.group()
		return l.drain(m, t, name, n, twice)
	}
}

func leatKafkaPublish(topics *kafkaTopics, goroutines, batch int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		name, err := topics.empty(1)
		if err != nil {
			return err
		}
		t, err := openKafka()
		if err != nil {
			return err
		}
		return publish(m, t, name, n, goroutines, batch)
	}
}
