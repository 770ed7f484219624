package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// watermillID is the header that has a message's id, in Watermill's format.
const watermillID = "_watermill_message_uuid"

// kafkaTopics are filled topics, each of which many groups read one after the
// other.
type kafkaTopics struct {
	filled map[kafkaTopic]string // their names
	made   []string              // all that were made
	groups []string
}

type kafkaTopic struct {
	partitions int32
	messages   int
}

func newKafkaTopics() *kafkaTopics { return &kafkaTopics{filled: map[kafkaTopic]string{}} }

// kafkaSeeds are the addresses in the broker's URL.
func kafkaSeeds() []string {
	u, err := url.Parse(kafkaBroker.url())
	if err != nil {
		return nil // nothing is reached, which is the error then
	}
	return strings.Split(u.Host, ",")
}

// group is a name for one that begins at the first message.
func (k *kafkaTopics) group() string {
	name := unique()
	k.groups = append(k.groups, name)
	return name
}

// with is a topic of n messages of 1 KiB.
func (k *kafkaTopics) with(partitions int32, n int) (string, error) {
	what := kafkaTopic{partitions, n}
	if name := k.filled[what]; name != "" {
		return name, nil
	}
	name, err := k.empty(partitions)
	if err != nil {
		return "", err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(kafkaSeeds()...), kgo.DefaultProduceTopic(name), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return "", err
	}
	defer cl.Close()
	const batch = 10_000
	for from := 0; from < n; from += batch {
		records := kafkaRecords(kibibytes(from, min(batch, n-from)))
		if err := cl.ProduceSync(background(), records...).FirstErr(); err != nil {
			return "", fmt.Errorf("filling: %w", err)
		}
	}
	k.filled[what] = name
	return name, nil
}

// empty is a new topic.
func (k *kafkaTopics) empty(partitions int32) (string, error) {
	name := unique()
	err := withKafkaAdmin(func(ctx context.Context, admin *kadm.Client) error {
		made, err := admin.CreateTopic(ctx, partitions, -1, nil, name)
		return errors.Join(err, made.Err)
	})
	k.made = append(k.made, name)
	return name, err
}

// drop deletes topics, what was derived from them, and groups.
func (k *kafkaTopics) drop() error {
	if len(k.made) == 0 {
		return nil
	}
	return withKafkaAdmin(func(ctx context.Context, admin *kadm.Client) error {
		there, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		names := slices.DeleteFunc(there.Names(), func(name string) bool {
			source, _, _ := strings.Cut(name, "--")
			return !slices.Contains(k.made, source)
		})
		_, err = admin.DeleteTopics(ctx, names...)
		_, groups := admin.DeleteGroups(ctx, k.groups...)
		k.filled, k.made, k.groups = map[kafkaTopic]string{}, nil, nil
		return errors.Join(err, groups)
	})
}

func withKafkaAdmin(fn func(context.Context, *kadm.Client) error) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(kafkaSeeds()...))
	if err != nil {
		return err
	}
	defer cl.Close()
	return fn(background(), kadm.NewClient(cl))
}

// kafkaRecords are messages in Watermill's format.
func kafkaRecords(msgs []*message.Message) []*kgo.Record {
	records := make([]*kgo.Record, len(msgs))
	for i, m := range msgs {
		records[i] = &kgo.Record{
			Key: []byte(m.Metadata[transport.KeyHeader]), Value: m.Payload,
			Headers: []kgo.RecordHeader{{Key: watermillID, Value: []byte(m.UUID)}},
		}
	}
	return records
}
