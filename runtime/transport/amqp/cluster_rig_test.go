package amqp_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/middleware" //nolint:depguard // the test has whole workers
	"github.com/leat-io/leat/runtime"    //nolint:depguard // the test has whole workers
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/transport/history"
)

const (
	clusterPrefetch = 64
	clusterTimeout  = 3 * time.Second // of a publish
)

// cluster is three nodes with a topic, a publisher and workers, and the history of all.
type cluster struct {
	*rig
	own     *brokertest.Brokers
	log     *history.Log // of what is published, and what is done to nodes
	workers []*worker

	stopPublishing func()

	mu       sync.Mutex
	sent     []string        // confirmed
	handled  map[string]bool // by any worker
	failures []string        // of publishes
}

// worker is one that consumes, on connections of its own.
type worker struct {
	name  string
	tr    *amqp.Transport
	log   *history.Log
	said  *logged
	stop  context.CancelFunc
	ended chan error
}

// newCluster publishes at a node, which leads the queue, as it is declared there.
func newCluster(t *testing.T, own *brokertest.Brokers, node string) *cluster {
	t.Helper()
	c := &cluster{
		own: own, log: history.NewLog("publisher"), handled: map[string]bool{},
		rig: newRig(t, own.URL("rabbitmq3"), func(o *amqp.Options) { o.PublishTimeout = clusterTimeout }),
	}
	c.prefer(c.tr.(swept).Transport, node)
	c.declare()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	c.stopPublishing = sync.OnceFunc(func() { cancel(); <-ended })
	p, err := history.Wrap(c.tr, c.log).OpenProducer(t.Context())
	require.NoError(t, err)
	go func() {
		defer close(ended)
		c.publishUntil(ctx, p)
	}()
	t.Cleanup(func() {
		c.stopPublishing()
		for _, w := range c.workers {
			w.stop()
			<-w.ended
			require.NoError(t, w.tr.Close(context.Background()))
		}
	})
	return c
}

// publishUntil publishes batch after batch. What is not confirmed is given up:
// it may come, and then it comes once.
func (c *cluster) publishUntil(ctx context.Context, p transport.Producer) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n += 10 {
		msgs := make([]*message.Message, 10)
		for i := range msgs {
			msgs[i] = message.NewMessage(fmt.Sprintf("m-%06d", n+i), []byte("body"))
		}
		c.publishOnce(ctx, p, msgs)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publishOnce waits for longer than a publish may take, also at the end.
func (c *cluster) publishOnce(ctx context.Context, p transport.Producer, msgs []*message.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := p.Publish(ctx, c.topic, msgs...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failures = append(c.failures, err.Error())
		return
	}
	for _, m := range msgs {
		c.sent = append(c.sent, m.UUID)
	}
}

// work starts a worker that connects to a node, as long as that is there.
func (c *cluster) work(name, node string) *worker {
	c.Helper()
	w := &worker{name: name, log: history.NewLog(name), said: new(logged), ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(w.said, nil))
	w.tr = open(c.T, c.url, ours, func(o *amqp.Options) { o.Log = log })
	c.prefer(w.tr, node)
	p := transport.Policy{Group: c.group, Concurrency: 32, Prefetch: clusterPrefetch}.Defaults("c", w.tr.Capabilities())
	p.Middleware = middleware.Default(p)
	router := runtime.NewRouter(runtime.Options{Instance: transport.Instance{ID: name}, DrainTimeout: time.Minute, Log: log})
	require.NoError(c, router.Consume("c", history.Wrap(w.tr, w.log), c.topic, history.Handler(c.handle, w.log), p))
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	w.stop = cancel
	go func() {
		w.ended <- router.Run(ctx)
		close(w.ended)
	}()
	c.workers = append(c.workers, w)
	return w
}

// prefer has a transport connect to a node, as long as that is there.
func (c *cluster) prefer(tr transport.Transport, node string) {
	for _, other := range others(node) {
		amqp.Trouble(tr, c.address(other))
	}
}

// handle takes a few milliseconds.
func (c *cluster) handle(m *message.Message) ([]*message.Message, error) {
	work := time.NewTimer(5 * time.Millisecond)
	defer work.Stop()
	select {
	case <-work.C:
	case <-m.Context().Done():
		return nil, context.Cause(m.Context())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handled[m.UUID] = true
	return nil, nil
}

func (c *cluster) counts() (sent, handled int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sent), len(c.handled)
}

// flows waits until 200 more are published and handled.
func (c *cluster) flows(what string) {
	c.Helper()
	began := time.Now()
	sent, handled := c.counts()
	c.eventually(what, func() bool {
		s, h := c.counts()
		return s >= sent+200 && h >= handled+200
	})
	c.Logf("it flows %s: %v", what, time.Since(began).Round(time.Millisecond))
}

func (c *cluster) eventually(what string, so func() bool) {
	c.Helper()
	if !assertEventually(c.T, so) {
		sent, handled := c.counts()
		c.mu.Lock()
		defer c.mu.Unlock()
		said := []string{c.rig.log.String()}
		for _, w := range c.workers {
			said = append(said, w.said.String())
		}
		require.FailNow(c, "not in time: "+what, "%d published, %d handled; publishes failed with %q\n%s", sent, handled, c.failures, strings.Join(said, "\n"))
	}
}

func assertEventually(t *testing.T, so func() bool) bool {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// during does something to nodes, and lets time pass until it is mended.
func (c *cluster) during(what string, trouble func()) {
	c.Helper()
	c.log.Add(history.Event{Kind: history.Fault, Text: what})
	trouble()
	c.flows("after " + what)
	c.log.Add(history.Event{Kind: history.Healed})
}

// judge stops all and holds the history against the rules: nothing lost, and
// at each fault no more run again than the workers had in hand.
func (c *cluster) judge() {
	c.Helper()
	c.stopPublishing()
	c.eventually("all that was confirmed is handled", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !slices.ContainsFunc(c.sent, func(id string) bool { return !c.handled[id] })
	})
	c.eventually("nothing is left", func() bool {
		d, err := c.tr.Depth(c.within(), c.topic, c.group)
		return err == nil && d.Ready == 0
	})
	events := c.log.Events()
	for _, w := range c.workers {
		w.stop()
		require.NoError(c, <-w.ended, "%s", w.said)
		w.log.Add(history.Event{Kind: history.Ended})
		events = append(events, w.log.Events()...)
	}
	d, err := c.tr.Depth(c.within(), c.topic, c.group)
	require.NoError(c, err)
	if d.Ready > 0 {
		c.leftOver(int(d.Ready))
	}
	report := history.Check(events, history.Options{Topic: c.topic, Unordered: true, Async: true, Bound: len(c.workers) * clusterPrefetch})
	require.Empty(c, report.Violations, "%v", report)
	c.Logf("%v; %d publishes failed", report, len(c.failures))
}

// leftOver looks at what is left after a stop: what nobody was told of, which a
// node that was frozen has sent on late, and messages whose acks the broker has
// forgotten, no more than the workers had in hand.
func (c *cluster) leftOver(n int) {
	c.Helper()
	forgotten := 0
	for _, left := range c.receive(c.consumer(), n) {
		if slices.Contains(c.sent, left.ID) {
			forgotten++
		}
	}
	require.LessOrEqual(c, forgotten, len(c.workers)*clusterPrefetch)
}

func nodesOf() []string { return []string{"rabbitmq3-1", "rabbitmq3-2", "rabbitmq3-3"} }

func (c *cluster) address(node string) string { return hostOf(c.T, c.own.URL(node)) }

// leader asks a node for the one that leads the queue of the group. Where the
// node that was killed had the nodes' directory, others take that over first.
func (c *cluster) leader(node string) (found string) {
	c.Helper()
	argv := c.own.Command("exec", node, "rabbitmqctl", "-q", "--no-table-headers", "list_queues", "name", "leader")
	c.eventually("the queue has a leader", func() bool {
		out, err := exec.CommandContext(c.Context(), argv[0], argv[1:]...).Output()
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(out)) {
			name, leader, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if number := strings.TrimSuffix(strings.TrimPrefix(leader, "leat3-"), "@localhost"); name == c.queue() {
				found = "rabbitmq3-" + number
			}
		}
		return slices.Contains(nodesOf(), found)
	})
	return found
}

// others are the nodes but one.
func others(node string) []string {
	return slices.DeleteFunc(nodesOf(), func(n string) bool { return n == node })
}

// failed are the errors of publishes so far.
func (c *cluster) failed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failures)
}

// soaking tells whether tests may take long.
func soaking() bool { return os.Getenv("LEAT_SOAK") != "" }
