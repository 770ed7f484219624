package watermill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/leat-io/leat/runtime/transport"
)

// declare makes a topic that is not there, or says that it is not.
func (k *kafkaKind) declare(ctx context.Context, mode transport.Topology, d transport.Declaration) error {
	c, err := k.sarama()
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin(k.Brokers, c)
	if err != nil {
		return refuseKafka(err)
	}
	defer func() { _ = admin.Close() }()
	partitions, err := partitionsOf(admin, d.Topic)
	switch {
	case err != nil:
		return refuseKafka(err)
	case len(partitions) > 0:
		return k.place(ctx, admin, mode, d, partitions)
	case mode == transport.TopologyVerify:
		return transport.Refuse(fmt.Errorf("topic %q does not exist: declare it, or set topology to declare", d.Topic))
	}
	detail := &sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: -1}
	if k.Partitions > 0 {
		detail.NumPartitions = int32(k.Partitions) //nolint:gosec // a topic has not that many
	}
	if k.Replication > 0 {
		detail.ReplicationFactor = int16(k.Replication) //nolint:gosec // likewise
	}
	if err := admin.CreateTopic(d.Topic, detail, false); err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return refuseKafka(err)
	}
	for { // until its partitions have leaders
		if partitions, err = partitionsOf(admin, d.Topic); err != nil {
			return refuseKafka(err)
		}
		if len(partitions) > 0 {
			return k.place(ctx, admin, mode, d, partitions)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// partitionsOf are those of a topic, if all of them have leaders.
func partitionsOf(admin sarama.ClusterAdmin, topic string) (numbers []int32, err error) {
	found, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	switch err := found[0].Err; {
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition), errors.Is(err, sarama.ErrLeaderNotAvailable):
		return nil, nil
	case !errors.Is(err, sarama.ErrNoError):
		return nil, err
	}
	for _, p := range found[0].Partitions {
		if p.Leader < 0 {
			return nil, nil
		}
		numbers = append(numbers, p.ID)
	}
	return numbers, nil
}

// place gives a group that has none its place in a topic, so that it begins
// where it is declared, and not where the first member happens to find the end.
func (k *kafkaKind) place(ctx context.Context, admin sarama.ClusterAdmin, mode transport.Topology, d transport.Declaration, partitions []int32) error {
	if d.Group == "" {
		return nil
	}
	offsets, err := admin.ListConsumerGroupOffsets(d.Group, map[string][]int32{d.Topic: partitions})
	if err != nil {
		return refuseKafka(err)
	}
	missing := slices.DeleteFunc(slices.Clone(partitions), func(p int32) bool {
		b := offsets.GetBlock(d.Topic, p)
		return b != nil && b.Offset >= 0
	})
	switch {
	case mode == transport.TopologyVerify && len(missing) == len(partitions):
		return transport.Refuse(fmt.Errorf("group %q has no offsets in topic %q: set topology to declare", d.Group, d.Topic))
	case mode == transport.TopologyVerify || len(missing) == 0:
		return nil
	}
	return k.commit(ctx, d, missing)
}

// commit writes a group's first offsets. Where the group has members already,
// the broker refuses, and they find their places themselves.
func (k *kafkaKind) commit(ctx context.Context, d transport.Declaration, partitions []int32) error {
	c, err := k.sarama()
	if err != nil {
		return err
	}
	client, err := sarama.NewClient(k.Brokers, c)
	if err != nil {
		return refuseKafka(err)
	}
	defer func() { _ = client.Close() }()
	at := sarama.OffsetOldest
	if d.Start == transport.StartLatest {
		at = sarama.OffsetNewest
	}
	req := &sarama.OffsetCommitRequest{Version: 6, ConsumerGroup: d.Group, ConsumerGroupGeneration: sarama.GroupGenerationUndefined}
	for _, p := range partitions {
		offset, err := client.GetOffset(d.Topic, p, at)
		for errors.Is(err, sarama.ErrNotLeaderForPartition) || errors.Is(err, sarama.ErrLeaderNotAvailable) { // just made
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return err
			}
			offset, err = client.GetOffset(d.Topic, p, at)
		}
		if err != nil {
			return refuseKafka(err)
		}
		req.AddBlockWithLeaderEpoch(d.Topic, p, offset, -1, 0, "")
	}
	coordinator, err := client.Coordinator(d.Group)
	if err != nil {
		return refuseKafka(err)
	}
	res, err := coordinator.CommitOffset(req)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		switch err := res.Errors[d.Topic][p]; {
		case errors.Is(err, sarama.ErrNoError), errors.Is(err, sarama.ErrUnknownMemberId), errors.Is(err, sarama.ErrIllegalGeneration), errors.Is(err, sarama.ErrRebalanceInProgress):
		default:
			return refuseKafka(err)
		}
	}
	return nil
}
