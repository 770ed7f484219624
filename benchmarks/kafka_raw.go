package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/benchmarks/harness"
)

// kafkaCommit is how often offsets are committed: Leat's default.
const kafkaCommit = 20 * time.Millisecond

// rawKafka is franz-go's poll loop, with a handler that looks at each record.
func rawKafka(topics *kafkaTopics, partitions int32) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		name, err := topics.with(partitions, twice*n)
		if err != nil {
			return err
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(kafkaSeeds()...), kgo.ConsumerGroup(topics.group()), kgo.ConsumeTopics(name),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, cancel := context.WithCancel(background())
		defer cancel()
		go commitRegularly(ctx, cl)
		c := newCount(m, n, twice)
		for c.handled.Load() < c.end {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return err
			}
			fetches.EachRecord(func(r *kgo.Record) { harness.Sink = r })
			c.add(fetches.NumRecords())
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		c.settled()
		return nil
	}
}

// commitRegularly commits what was polled, as often as Leat does; franz-go's
// own commits have at least 100 ms between them.
func commitRegularly(ctx context.Context, cl *kgo.Client) {
	t := time.NewTicker(kafkaCommit)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = cl.CommitUncommittedOffsets(ctx) // the last one tells
		case <-ctx.Done():
			return
		}
	}
}

// rawKafkaPublish is ProduceSync of so many records at a time.
func rawKafkaPublish(topics *kafkaTopics, batch int) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		name, err := topics.empty(1)
		if err != nil {
			return err
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(kafkaSeeds()...), kgo.DefaultProduceTopic(name))
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx := context.Background()
		if err := cl.ProduceSync(ctx, kafkaRecords(kibibytes(0, 1))...).FirstErr(); err != nil {
			return err
		}
		msgs := kibibytes(0, n)
		m.Start()
		for at := 0; at < n; at += batch {
			if err := cl.ProduceSync(ctx, kafkaRecords(msgs[at:min(n, at+batch)])...).FirstErr(); err != nil {
				return err
			}
		}
		m.Stop()
		return nil
	}
}
