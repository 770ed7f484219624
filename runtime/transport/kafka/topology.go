package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/leat-io/leat/runtime/transport"
)

// topicSettings are what a publisher must know of a topic.
type topicSettings struct {
	maxBytes int32 // of a batch
}

const (
	retentionKey  = "retention.ms"
	cleanupKey    = "cleanup.policy"
	minISRKey     = "min.insync.replicas"
	uncleanKey    = "unclean.leader.election.enable"
	maxBytesKey   = "max.message.bytes"
	keptForever   = "-1"
	deadPartition = 1
)

// Declare makes sure of topics, and of positions for their groups: a group
// that has none begins where its Start says, and that is written down.
func (t *Transport) Declare(ctx context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	switch mode {
	case transport.TopologyDeclare, transport.TopologyVerify, transport.TopologyOff:
	default:
		return transport.Refuse(fmt.Errorf("topology %q: want declare, verify or off", mode))
	}
	t.mu.Lock()
	t.mode = mode
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return fmt.Errorf("kafka broker: %w", transport.ErrClosed)
	}
	if mode == transport.TopologyOff {
		return nil
	}
	for _, d := range ds {
		err := transport.CheckName("topic", d.Topic)
		if d.Group != "" {
			err = errors.Join(err, transport.CheckName("group", d.Group))
		}
		if err != nil {
			return transport.Refuse(err)
		}
		if err := patiently(ctx, func() error { return t.declareTopic(ctx, mode, d) }); err != nil {
			return refuse(fmt.Errorf("topic %q: %w", d.Topic, t.from(err)))
		}
		if d.Group == "" {
			continue
		}
		if err := patiently(ctx, func() error { return t.declareGroup(ctx, mode, d) }); err != nil {
			return refuse(fmt.Errorf("group %q of topic %q: %w", d.Group, d.Topic, t.from(err)))
		}
	}
	return nil
}

func (t *Transport) declareTopic(ctx context.Context, mode transport.Topology, d transport.Declaration) error {
	detail, err := t.describe(ctx, d.Topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if mode == transport.TopologyVerify {
			return transport.Refuse(errMissing)
		}
		return t.create(ctx, d)
	}
	if err != nil {
		return err
	}
	if mode != transport.TopologyVerify {
		return nil
	}
	if n := len(detail.Partitions); !d.DeadLetter && t.o.Partitions > n && t.o.asked.partitions {
		return transport.Refuse(fmt.Errorf("has %d partitions where %d are asked for", n, t.o.Partitions))
	}
	for _, risk := range t.risks(ctx, detail) {
		t.log.WarnContext(ctx, "topic may lose messages", "topic", d.Topic, "risk", risk)
	}
	return nil
}

// checkTopics finds those that are missing where nothing is declared: the
// client would wait for them in silence.
func (t *Transport) checkTopics(ctx context.Context, topics []string) error {
	for _, topic := range topics {
		err := patiently(ctx, func() error {
			_, err := t.describe(ctx, topic)
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				return errMissing
			}
			return err
		})
		if err != nil {
			return refuse(fmt.Errorf("topic %q: %w", topic, t.from(err)))
		}
	}
	return nil
}

// errMissing is a topic that is not there.
var errMissing = errors.New("does not exist: create it, or set topology to declare")

// describe asks for one topic; [kerr.UnknownTopicOrPartition] if it is not there.
func (t *Transport) describe(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	adm, err := t.admin()
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	found, err := adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	detail := found[topic]
	if detail.Topic == "" {
		return detail, kerr.UnknownTopicOrPartition
	}
	return detail, detail.Err
}

// create makes a topic, unless somebody has by now.
func (t *Transport) create(ctx context.Context, d transport.Declaration) error {
	adm, err := t.admin()
	if err != nil {
		return err
	}
	partitions, replication := int32(t.o.Partitions), int16(-1) //nolint:gosec // bounded by the options
	if t.o.Replication > 0 {
		replication = int16(t.o.Replication) //nolint:gosec // bounded by the options
	}
	config := map[string]*string{}
	if t.o.MinISR > 0 {
		config[minISRKey] = new(strconv.Itoa(t.o.MinISR))
	}
	if d.DeadLetter {
		partitions = deadPartition
		config[retentionKey], config[cleanupKey] = new(keptForever), new("delete")
	}
	made, err := adm.CreateTopic(ctx, partitions, replication, config, d.Topic)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
	case err != nil && made.ErrMessage != "":
		return fmt.Errorf("create: %w: %s", err, made.ErrMessage)
	case err != nil:
		return fmt.Errorf("create: %w", err)
	}
	return t.awaitTopic(ctx, d.Topic)
}

// awaitTopic waits until a topic that was just made can be used.
func (t *Transport) awaitTopic(ctx context.Context, topic string) error {
	for tries := 0; ; tries++ {
		detail, err := t.describe(ctx, topic)
		led := func(p kadm.PartitionDetail) bool { return p.Err == nil && p.Leader >= 0 }
		if err == nil && !slices.ContainsFunc(detail.Partitions.Sorted(), func(p kadm.PartitionDetail) bool { return !led(p) }) {
			return nil
		}
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
		if err := pause(ctx, tries); err != nil {
			return fmt.Errorf("waiting for its partitions: %w", err)
		}
	}
}

// settings makes sure of a topic that is published to, and finds out how much
// it takes at once.
func (t *Transport) settings(ctx context.Context, topic string) (topicSettings, error) {
	t.mu.Lock()
	known, ok := t.topics[topic]
	mode := t.mode
	t.mu.Unlock()
	if ok {
		return known, nil
	}
	if mode == "" || mode == transport.TopologyDeclare {
		if err := t.declareTopic(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topic}); err != nil {
			return known, refuse(t.from(err))
		}
	} else if _, err := t.describe(ctx, topic); err != nil {
		return known, refuse(t.from(err))
	}
	known.maxBytes = int32(t.o.MaxMessageBytes) //nolint:gosec // bounded by the options
	if n := t.maxBytes(ctx, topic); n > 0 {
		known.maxBytes = n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.topics[topic] = known
	return known, nil
}

// maxBytes is the topic's max.message.bytes, 0 if we are not told.
func (t *Transport) maxBytes(ctx context.Context, topic string) int32 {
	n, err := strconv.ParseInt(t.config(ctx, topic)[maxBytesKey], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// config is a topic's configuration, empty if we may not see it.
func (t *Transport) config(ctx context.Context, topic string) map[string]string {
	values := map[string]string{}
	adm, err := t.admin()
	if err != nil {
		return values
	}
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil || len(configs) == 0 || configs[0].Err != nil {
		return values
	}
	for _, c := range configs[0].Configs {
		values[c.Key] = c.MaybeValue()
	}
	return values
}

// forget has the next publish ask for a topic again.
func (t *Transport) forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.topics, topic)
}

// risks says what of a topic may lose messages that were confirmed.
func (t *Transport) risks(ctx context.Context, detail kadm.TopicDetail) []string {
	var found []string
	for _, p := range detail.Partitions {
		if len(p.Replicas) == 1 {
			found = append(found, "it has one copy: set its replication to 3")
			break
		}
	}
	config := t.config(ctx, detail.Topic)
	if config[minISRKey] == "1" {
		found = append(found, "min.insync.replicas is 1, so that one copy confirms a publish: set it to 2")
	}
	if config[uncleanKey] == "true" {
		found = append(found, "unclean.leader.election.enable is on, so that a stale copy may become the topic: set it to false")
	}
	return found
}
