package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// said is what one commit covers of a spell.
type said struct {
	s       *spell
	changes uint64
}

// commitSoon commits when the interval since the last commit is over, or at
// once where something waits for it.
func (c *consumer) commitSoon(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	wait := c.t.o.CommitInterval - time.Since(c.pace)
	<-c.tell
	if wait > 0 && !c.crowded() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.hurry:
		case <-c.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return c.commit(ctx)
}

// commitPassed commits what was passed without being handed out, such as the
// markers of transactions, where no Settle is to come that would.
func (c *consumer) commitPassed(ctx context.Context) {
	if !c.hasPassed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := c.commit(ctx); err != nil {
		c.log.Debug("markers of transactions are not committed yet", "error", err.Error())
	}
}

func (c *consumer) hasPassed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.spells, func(s *spell) bool { return s.open == 0 && s.passed > s.told })
}

func (c *consumer) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held > c.crowd
}

func (c *consumer) acquire(ctx context.Context) error {
	select {
	case c.tell <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commit tells the group where all partitions stand that have changed. It
// tries until they are told, are no longer ours, or ctx ends.
func (c *consumer) commit(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer func() { <-c.tell }()
	var last error
	for tries := 0; ; tries++ {
		req, what := c.snapshot()
		if len(what) == 0 {
			return nil
		}
		c.pace = time.Now()
		resp, err := req.RequestWith(ctx, c.cl)
		if err == nil {
			last, err = c.heard(resp, what)
			if errors.Is(last, kerr.UnknownTopicOrPartition) || errors.Is(last, kerr.UnknownTopicID) {
				c.dropGone(ctx, tries, what)
			}
		}
		switch {
		case err == nil && last == nil:
			return nil
		case err != nil && ctx.Err() == nil && !transient(err):
			return refuse(fmt.Errorf("commit of group %q: %w", c.cfg.Group, err))
		case err != nil:
			last = err
		}
		if err := pause(ctx, tries); err != nil {
			return fmt.Errorf("commit of group %q: %w, after: %w", c.cfg.Group, err, last)
		}
	}
}

// snapshot makes the request for all that has changed.
func (c *consumer) snapshot() (*kmsg.OffsetCommitRequest, []said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	req := c.request()
	var what []said
	for _, s := range c.spells {
		if s.changes == s.told {
			continue
		}
		mark, above := s.position()
		for len(s.epochs) > 1 && s.epochs[1].from < mark {
			s.epochs = s.epochs[1:]
		}
		metadata := ""
		if limit := int(c.metaLimit.Load()); limit > 0 && above != nil {
			metadata = above.encode(limit)
		}
		add(req, s.topic, s.id, s.part, mark, s.epochAt(mark), metadata)
		what = append(what, said{s, s.changes})
	}
	return req, what
}

func (c *consumer) request() *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = c.cfg.Group
	req.MemberID, req.Generation = c.cl.GroupMetadata()
	if c.cfg.Instance.Set {
		req.InstanceID = &c.cfg.Instance.ID
	}
	return req
}

func add(req *kmsg.OffsetCommitRequest, topic string, id kadm.TopicID, part int32, offset int64, epoch int32, metadata string) {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = part, offset, epoch, &metadata
	for i := range req.Topics {
		if t := &req.Topics[i]; t.Topic == topic && t.TopicID == id {
			t.Partitions = append(t.Partitions, p)
			return
		}
	}
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, id
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
}

// heard takes in the answers: wait is one to try again after, err one that
// will stay.
func (c *consumer) heard(resp *kmsg.OffsetCommitResponse, what []said) (wait, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch e := kerr.ErrorForCode(p.ErrorCode); {
			case e == nil:
				for _, w := range what {
					if w.s.part == p.Partition && (w.s.topic == t.Topic || t.Topic == "" && w.s.id == kadm.TopicID(t.TopicID)) {
						w.s.told = max(w.s.told, w.changes)
					}
				}
			case errors.Is(e, kerr.OffsetMetadataTooLarge), errors.Is(e, kerr.InvalidCommitOffsetSize):
				c.metaLimit.Store(c.metaLimit.Load() / 2)
				wait = e
			case errors.Is(e, kerr.FencedInstanceID):
				c.fail(c.fenced())
				err = c.err
			case errors.Is(e, kerr.RebalanceInProgress), errors.Is(e, kerr.IllegalGeneration), errors.Is(e, kerr.UnknownMemberID),
				errors.Is(e, kerr.StaleMemberEpoch), errors.Is(e, kerr.FencedMemberEpoch), transient(e):
				wait = e // the client is about to learn of it
			default:
				err = e
			}
		}
	}
	return wait, err
}

// goneTries is how often a coordinator may not know a topic before another
// broker is asked: one that has just begun may know less than all the others.
const goneTries = 3

// dropGone has no commit wait for topics that are gone, or were made again:
// there is nobody to tell.
func (c *consumer) dropGone(ctx context.Context, tries int, what []said) {
	if tries < goneTries {
		return
	}
	gone := map[string]bool{}
	for _, w := range what {
		if _, asked := gone[w.s.topic]; !asked {
			detail, err := c.t.describe(ctx, w.s.topic)
			gone[w.s.topic] = errors.Is(err, kerr.UnknownTopicOrPartition) || err == nil && detail.ID != w.s.id
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range what {
		if gone[w.s.topic] {
			w.s.told = max(w.s.told, w.changes)
		}
	}
}

// commitPlaces writes down where partitions begin.
func (c *consumer) commitPlaces(ctx context.Context, at kadm.Offsets) error {
	if len(at) == 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tries := 0; ; tries++ {
		req := c.request()
		at.Each(func(o kadm.Offset) { add(req, o.Topic, o.TopicID, o.Partition, o.At, o.LeaderEpoch, "") })
		resp, err := req.RequestWith(ctx, c.cl)
		if err == nil {
			var wait error
			if wait, err = c.heard(resp, nil); wait == nil && err == nil {
				return nil
			}
			if err == nil {
				err = wait
			}
		}
		if ctx.Err() != nil || !transient(err) {
			return fmt.Errorf("commit of the first position: %w", err)
		}
		if pause(waiting, tries) != nil {
			return fmt.Errorf("commit of the first position: %w", err)
		}
	}
}
