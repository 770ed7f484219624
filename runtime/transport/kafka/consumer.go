package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/runtime/transport"
)

// consumer is one member of a group.
//
// The client's callbacks, which tell of partitions that come and go, run
// beside a poll. What a poll returns of a partition must be with its spell
// before the callback changes that: so whoever polls, or runs a callback's
// first part, has the turn, and a callback ends a poll that waits.
type consumer struct {
	t     *Transport
	cfg   transport.ConsumerConfig
	cl    *kgo.Client
	adm   *kadm.Client // on the same connections
	log   *slog.Logger
	end   context.CancelFunc // of the client, whatever it does
	bombs *inflater
	size  *sizer

	turn chan struct{} // held to poll, or to change which partitions are ours
	tell chan struct{} // held to commit
	pace time.Time     // when the last commit began; for whoever has tell

	hurry chan struct{} // a commit is wanted at once
	over  chan struct{} // closed by Close
	made  chan struct{} // closed when cl and adm are there, which callbacks wait for
	in    chan struct{} // holds one when the group has let us in
	out   chan error    // holds why it has not

	fetched    []kmsg.OffsetFetchResponseGroupTopic // from one callback to the next
	dead       atomic.Bool                          // by a test: callbacks do nothing
	metaLimit  atomic.Int64
	crowd      int           // unsettled deliveries beyond which commits do not linger
	late       atomic.Uint64 // settlements that came when their partition had gone
	outOfRange atomic.Uint64 // offsets that were gone before they were read
	partial    atomic.Pointer[leftOut]
	began      time.Time
	admitted   atomic.Bool // the group has let it in

	mu       sync.Mutex
	spells   []*spell
	left     map[string][]int32 // partitions that are ours and cannot be read yet
	pins     pins
	first    int    // which spell Receive begins with
	held     int    // handed out and not settled
	stirred  bool   // a poll is not to wait
	yielding int    // callbacks that want the turn
	endPoll  func() // ends the poll that waits, if one does
	err      error  // why the consumer is over

	interrupted bool // the client has lost the group, and not come back yet
}

var (
	_ transport.Consumer = (*consumer)(nil)
	_ transport.Partial  = (*consumer)(nil)
)

// joinPatience is how long opening waits for the group, which others may hold
// up; after that it joins in the background.
const joinPatience = 10 * time.Second

// awaitGroup waits until the group has let us in, so that what it refuses is an
// error of the opening.
func (c *consumer) awaitGroup(ctx context.Context) error {
	timer := time.NewTimer(joinPatience)
	defer timer.Stop()
	select {
	case <-c.in:
	case err := <-c.out:
		return err
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// join makes a member.
func (t *Transport) join(ctx context.Context, cfg transport.ConsumerConfig) (*consumer, error) {
	if cfg.Base == nil {
		cfg.Base = context.WithoutCancel(ctx)
	}
	if cfg.Span <= 0 {
		cfg.Span = 1 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := t.admin(); err != nil {
		return nil, err
	}
	bounded, _ := t.base.OptValue(kgo.WithDecompressor).(kgo.Decompressor) // with MaxBatchBytes
	c := &consumer{
		t: t, cfg: cfg, log: cfg.Log.With("group", cfg.Group), began: time.Now(),
		turn: make(chan struct{}, 1), tell: make(chan struct{}, 1), hurry: make(chan struct{}, 1), over: make(chan struct{}), made: make(chan struct{}), in: make(chan struct{}, 1), out: make(chan error, 1),
		crowd: max(4*cfg.Prefetch, 2048), left: map[string][]int32{},
		pins:  pins{limit: pinFactor * cfg.PrefetchBytes},
		size:  newSizer(cfg.PrefetchBytes),
		bombs: &inflater{Decompressor: bounded, limit: int64(t.o.MaxBatchBytes)},
	}
	c.metaLimit.Store(int64(t.o.CommitMetadata))
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	c.end = end
	cl, err := t.client(append(c.options(), kgo.WithContext(running))...)
	if err != nil {
		end()
		return nil, fmt.Errorf("join group %q: %w", cfg.Group, err)
	}
	c.cl, c.adm = cl, kadm.NewClient(cl)
	close(c.made)
	if err := c.awaitGroup(ctx); err != nil {
		_ = c.leave(context.WithoutCancel(ctx)) // the error is why
		cl.Close()
		return nil, refuse(fmt.Errorf("join group %q: %w", cfg.Group, err))
	}
	return c, nil
}

func (c *consumer) options() []kgo.Opt {
	o := &c.t.o
	opts := []kgo.Opt{
		kgo.WithLogger(logger{c.log}),
		kgo.ConsumerGroup(c.cfg.Group),
		kgo.ConsumeTopics(c.cfg.Topics...),
		kgo.DisableAutoCommit(),
		kgo.RebalanceTimeout(o.RebalanceTimeout),
		kgo.FetchMaxBytes(c.size.told),
		kgo.FetchMaxPartitionBytes(c.size.told),
		kgo.FetchMaxWait(time.Second),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.WithDecompressor(c.bombs),
		kgo.WithHooks(hooks{c}, c.size),
		kgo.OnOffsetsFetched(c.offsetsFetched),
		kgo.AdjustFetchOffsetsFn(c.assigned),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			c.admitted.Store(true)
			poke(c.in)
		}),
		kgo.OnPartitionsRevoked(c.revoked),
		kgo.OnPartitionsLost(c.lost),
	}
	if o.Isolation == readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if o.Rack != "" {
		opts = append(opts, kgo.Rack(o.Rack))
	}
	if c.cfg.Instance.Set {
		opts = append(opts, kgo.InstanceID(c.cfg.Instance.ID))
	}
	if o.GroupProtocol == protocolServer {
		opts = append(opts, kgo.ServerSideBalancer())
		if len(o.Balancers) == 0 {
			return append(opts, kgo.Balancers(kgo.StickyBalancer()))
		}
	} else {
		opts = append(opts, kgo.SessionTimeout(o.SessionTimeout), kgo.HeartbeatInterval(min(o.SessionTimeout/6, 3*time.Second)))
	}
	var bs []kgo.GroupBalancer
	for _, b := range o.Balancers {
		bs = append(bs, balancers[b]())
	}
	return append(opts, kgo.Balancers(bs...))
}

// Pause stops deliveries of one assignment.
func (c *consumer) Pause(a *transport.Assignment) { c.pause(a, true) }

// Resume lets them come again.
func (c *consumer) Resume(a *transport.Assignment) { c.pause(a, false) }

func (c *consumer) pause(a *transport.Assignment, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spells, func(s *spell) bool { return s.a == a })
	if i < 0 || c.spells[i].paused == paused {
		return
	}
	c.spells[i].paused = paused
	c.stir()
}

// fenced says that another process has taken the static id.
func (c *consumer) fenced() error {
	return fmt.Errorf("group %q, instance %q: %w: give each worker a name of its own (--instance, LEAT_INSTANCE)", c.cfg.Group, c.cfg.Instance.ID, transport.ErrFenced)
}

// fail ends the consumer with the next Receive. c.mu is held.
func (c *consumer) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.stir()
}

// Close commits what is settled, gives back the rest and leaves the group; a
// static member stays in it, for its next process.
func (c *consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.isOver() {
		c.mu.Unlock()
		return nil
	}
	close(c.over)
	c.fail(fmt.Errorf("receive from group %q: %w", c.cfg.Group, transport.ErrClosed))
	c.mu.Unlock()
	gone := c.freeze(nil)
	err := c.commit(ctx)
	c.forget(gone)
	left := c.leave(ctx)
	c.cl.Close()
	if n := c.late.Load(); n > 0 {
		c.log.Warn("messages were done after their partitions had gone: they are handled again by others", "count", n)
	}
	if err != nil {
		err = fmt.Errorf("last commit of group %q: %w", c.cfg.Group, err)
	}
	if left != nil {
		left = fmt.Errorf("leave group %q: %w", c.cfg.Group, left)
	}
	return errors.Join(err, left)
}

// leavePatience bounds leaving a group that has not let the member in yet.
const leavePatience = 2 * time.Second

// leave tells the group, and ends the client. One that is not let in yet is told
// by another client after its own has ended: that would wait to be let in, or,
// being put out, join again; and to the group it would be a member that says
// nothing, for which all others wait.
func (c *consumer) leave(ctx context.Context) error {
	defer c.end()
	id, generation := c.cl.GroupMetadata()
	if generation >= 0 || c.cfg.Instance.Set || c.t.o.GroupProtocol == protocolServer {
		return c.cl.LeaveGroupContext(ctx)
	}
	c.end()
	if id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = c.cfg.Group, id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = id
	req.Members = append(req.Members, m)
	_, err := req.RequestWith(ctx, c.t.base)
	return err
}

func (c *consumer) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
