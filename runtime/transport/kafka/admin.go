package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/leat-io/leat/runtime/transport"
)

var _ transport.GroupAdmin = (*Transport)(nil)

// Groups lists the groups of consumers that have a position in a topic, or a
// member that reads it. The age of what waits is not known.
func (t *Transport) Groups(ctx context.Context) ([]transport.GroupInfo, error) {
	wrong := func(err error) ([]transport.GroupInfo, error) {
		return nil, refuse(fmt.Errorf("groups: %w", err))
	}
	adm, err := t.admin()
	if err != nil {
		return wrong(err)
	}
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return wrong(err)
	}
	var names []string
	for _, g := range listed.Sorted() {
		if g.GroupType != "share" && (g.ProtocolType == "" || g.ProtocolType == "consumer") {
			names = append(names, g.Group)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	readers, err := members(ctx, adm, names...)
	if err != nil {
		return wrong(err)
	}
	at := map[source]map[int32]kadm.OffsetResponse{}
	for s := range readers {
		at[s] = nil // also of those that have no position yet
	}
	for group, found := range adm.FetchManyOffsets(ctx, names...) {
		if found.Err != nil && !errors.Is(found.Err, kerr.GroupIDNotFound) {
			return wrong(fmt.Errorf("positions of group %q: %w", group, found.Err))
		}
		for topic, parts := range found.Fetched {
			at[source{topic, group}] = parts
		}
	}
	return t.infos(ctx, at, readers)
}

// infos describes groups that have these positions and members.
func (t *Transport) infos(ctx context.Context, at map[source]map[int32]kadm.OffsetResponse, readers map[source][]string) ([]transport.GroupInfo, error) {
	extents := map[string]extent{}
	var out []transport.GroupInfo
	for s, parts := range at {
		e, known := extents[s.topic]
		if !known {
			var err error
			e, err = t.extent(ctx, s.topic)
			switch {
			case errors.Is(err, kerr.UnknownTopicOrPartition): // it was deleted, and nothing waits
			case err != nil:
				return nil, refuse(fmt.Errorf("groups of topic %q: %w", s.topic, err))
			}
			extents[s.topic] = e
		}
		out = append(out, transport.GroupInfo{Topic: s.topic, Group: s.group, Depth: e.depth(parts), Members: readers[s]})
	}
	slices.SortFunc(out, func(a, b transport.GroupInfo) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Group, b.Group))
	})
	return out, nil
}

// members are those of groups, by what they read: each by its static id, else
// by the id that the broker has given it.
func members(ctx context.Context, adm *kadm.Client, groups ...string) (map[source][]string, error) {
	out := map[source][]string{}
	add := func(group, topic, member string, instance *string) {
		if instance != nil {
			member = *instance
		}
		out[source{topic, group}] = append(out[source{topic, group}], member)
	}
	found, err := adm.DescribeGroups(ctx, groups...)
	if err != nil {
		return nil, err
	}
	var others []string // may be some whose partitions the broker shares out (KIP-848)
	for _, g := range found {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("group %q: %w", g.Group, g.Err)
		}
		if len(g.Members) == 0 {
			others = append(others, g.Group)
		}
		for _, m := range g.Members {
			if joined, ok := m.Join.AsConsumer(); ok {
				for _, topic := range joined.Topics {
					add(g.Group, topic, m.MemberID, m.InstanceID)
				}
			}
		}
	}
	if len(others) == 0 {
		return out, nil
	}
	newer, err := adm.DescribeConsumerGroups(ctx, others...)
	if err != nil && !errors.Is(err, kerr.UnsupportedVersion) {
		return nil, err
	}
	for _, g := range newer {
		for _, m := range g.Members {
			for _, topic := range m.SubscribedTopics {
				add(g.Group, topic, m.MemberID, m.InstanceID)
			}
		}
	}
	return out, nil
}

// DropGroup forgets a group's position in a topic, and the group with its last one.
func (t *Transport) DropGroup(ctx context.Context, topic, group string) error {
	wrong := func(err error) error {
		return refuse(fmt.Errorf("drop group %q of topic %q: %w", group, topic, err))
	}
	adm, err := t.admin()
	if err != nil {
		return wrong(err)
	}
	found, err := adm.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return wrong(err)
	}
	readers, err := members(ctx, adm, group)
	if err != nil {
		return wrong(err)
	}
	reading := readers[source{topic, group}]
	switch at := found[topic]; {
	case len(reading) > 0:
		return &transport.GroupInUseError{Topic: topic, Group: group, Members: reading}
	case len(at) == 0:
		return fmt.Errorf("group %q of topic %q: %w", group, topic, transport.ErrNoGroup)
	case len(found) == 1 && len(readers) == 0:
		_, err = adm.DeleteGroup(ctx, group)
	default:
		gone := kadm.TopicsSet{}
		for part := range at {
			gone.Add(topic, part)
		}
		var answers kadm.DeleteOffsetsResponses
		if answers, err = adm.DeleteOffsets(ctx, group, gone); err == nil {
			err = answers.Error()
		}
	}
	switch {
	case errors.Is(err, kerr.NonEmptyGroup), errors.Is(err, kerr.GroupSubscribedToTopic): // one has come meanwhile
		return &transport.GroupInUseError{Topic: topic, Group: group, Members: []string{"a member that has just come"}}
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil // somebody else has
	case err != nil:
		return wrong(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.begun, source{topic, group})
	return nil
}
