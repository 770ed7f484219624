package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/leat-io/leat/runtime/transport"
)

// declareGroup gives a group its position in all partitions of a topic in
// which it has none. Ends are asked for before positions, so that of two that
// do this at once the later one can only set a group back.
func (t *Transport) declareGroup(ctx context.Context, mode transport.Topology, d transport.Declaration) error {
	at, err := t.beginning(ctx, d)
	if err != nil {
		return err
	}
	known, err := t.hasPosition(ctx, d.Topic, d.Group)
	if err != nil || known {
		return err
	}
	if mode == transport.TopologyVerify {
		return transport.Refuse(errors.New("the group does not exist: it has no position; set topology to declare"))
	}
	adm, err := t.admin()
	if err != nil {
		return err
	}
	answers, err := adm.CommitOffsets(ctx, d.Group, at)
	if err == nil {
		err = answers.Error()
	}
	switch {
	case err == nil:
		t.noteBegun(d.Topic, d.Group)
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.StaleMemberEpoch):
		return nil // the group has members, and only they may set it
	}
	return err
}

// beginning is where a group without a position begins, in those partitions
// that can be asked; an error if none can.
func (t *Transport) beginning(ctx context.Context, d transport.Declaration) (kadm.Offsets, error) {
	adm, err := t.admin()
	if err != nil {
		return nil, err
	}
	list := adm.ListStartOffsets
	if d.Start == transport.StartLatest && !t.hasBegun(d.Topic, d.Group) {
		list = adm.ListCommittedOffsets
	}
	found, err := listed(ctx, list, d.Topic)
	if len(found) == 0 || isPermanent(err) {
		return nil, err
	}
	at := kadm.Offsets{}
	for part, offset := range found {
		at.AddOffset(d.Topic, part, offset, -1)
	}
	return at, nil
}

// listed are the offsets of those partitions of a topic that can be asked; the
// error is why others cannot, such as that they have no leader.
func listed(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), topic string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	found, err := list(ctx, topic)
	out := map[int32]int64{}
	for part, o := range found[topic] {
		if o.Err != nil {
			err = errors.Join(err, o.Err)
			continue
		}
		out[part] = o.Offset
	}
	return out, err
}

// hasPosition tells whether a group has a position in any partition of a topic.
func (t *Transport) hasPosition(ctx context.Context, topic, group string) (bool, error) {
	adm, err := t.admin()
	if err != nil {
		return false, err
	}
	found, err := positions(ctx, adm, topic, group)
	for _, o := range found[topic] {
		if o.At >= 0 {
			t.noteBegun(topic, group)
			return true, nil
		}
	}
	return false, err
}

// positions are those of a group in a topic; none if there is no such group.
func positions(ctx context.Context, adm *kadm.Client, topic, group string) (kadm.OffsetResponses, error) {
	found, err := adm.FetchOffsetsForTopics(ctx, group, topic)
	if err == nil {
		err = found.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	return found, err
}

// noteBegun remembers that a group has a position in a topic: if that is gone
// while this process runs, the topic was made again, and is read from its
// first message whatever Start says.
func (t *Transport) noteBegun(topic, group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun[source{topic, group}] = true
}

func (t *Transport) hasBegun(topic, group string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun[source{topic, group}]
}

// checkGroup refuses a group that is used by something else.
func (t *Transport) checkGroup(ctx context.Context, group string) error {
	adm, err := t.admin()
	if err != nil {
		return err
	}
	found, err := adm.DescribeGroups(ctx, group)
	if err != nil {
		return refuse(fmt.Errorf("group %q: %w", group, err))
	}
	g := found[group]
	switch {
	case errors.Is(g.Err, kerr.GroupIDNotFound):
	case g.Err != nil:
		return refuse(fmt.Errorf("group %q: %w", group, g.Err))
	case g.ProtocolType != "" && g.ProtocolType != "consumer" && len(g.Members) > 0:
		return transport.Refuse(fmt.Errorf("group %q is in use by something else: its protocol is %q; take another group", group, g.ProtocolType))
	}
	return nil
}

// transient tells whether an answer of a coordinator will change by itself.
func transient(err error) bool {
	return kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// patience is how long a cluster may take to settle: the coordinator of a new
// group, the leader of a new partition.
const patience = 10 * time.Second

// patiently calls fn until it says something that will not change by itself.
func patiently(ctx context.Context, fn func() error) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tries := 0; ; tries++ {
		err := fn()
		if err == nil || !transient(err) || pause(waiting, tries) != nil {
			return err
		}
	}
}

// pause waits before another try, from 50ms on up to a second.
func pause(ctx context.Context, tries int) error {
	d := min(50*time.Millisecond<<min(tries, 5), time.Second)
	timer := time.NewTimer(d/2 + rand.N(d/2)) //nolint:gosec // spreads load
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
