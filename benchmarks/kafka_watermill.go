package main

import (
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/benchmarks/harness"
)

// oldest is Sarama's OffsetOldest.
const oldest = -2

// watermillKafka measures watermill-kafka as it comes.
func watermillKafka(topics *kafkaTopics, partitions int32, handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		name, err := topics.with(partitions, twice*n)
		if err != nil {
			return err
		}
		c := wkafka.DefaultSaramaSubscriberConfig()
		c.Consumer.Offsets.Initial = oldest
		sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
			Brokers: kafkaSeeds(), ConsumerGroup: topics.group(), OverwriteSaramaConfig: c,
		}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		return routed(m, n, twice, name, handle, sub)
	}
}
