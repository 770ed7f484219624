package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/history"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// work is what the handlers of a process do.
func work(d time.Duration, then probe.Then) string {
	return fmt.Sprintf("--set=consumers.c.handler.probe={work: %s, then: %s}", d, then)
}

// TestK1_rebalances has workers join and leave while handlers run and keyed
// messages come. Nothing is lost, no key loses its order, no message runs twice
// at once, and none that is done runs again: a partition that moves is
// committed before.
func TestK1_rebalances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 6)
	w.o.SessionTimeout = 20 * time.Second // nobody is killed, and a busy machine puts nobody out
	s := w.site()
	log := history.NewLog("publisher")
	p, err := history.Wrap(w.connect(), log).OpenProducer(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(within(t))) }()
	published := 0
	publish := func() {
		for range scale(5, 1) { // handlers that take seconds get no further
			msgs := make([]*message.Message, 40)
			for i := range msgs {
				msgs[i] = message.NewMessage(fmt.Sprintf("m-%06d", published), nil)
				msgs[i].Metadata.Set(transport.KeyHeader, fmt.Sprint("k-", published%scale(50, 200)))
				published++
			}
			require.NoError(t, p.Publish(within(t), w.topic, msgs...))
		}
	}
	started := 0
	start := func() *process {
		most := scale(500, 5_000)
		started++
		return s.start(fmt.Sprint("w-", started), work(time.Duration(rand.IntN(most))*time.Millisecond, probe.Done), "--set=consumers.c.concurrency=32")
	}
	workers := []*process{start(), start()}
	for range scale(4, 60) {
		publish()
		oldest := workers[0]
		oldest.until("it is at work", func() bool { // another one may have taken all
			return s.count(history.Done, "") >= published || // they were quick
				slices.ContainsFunc(workers, func(p *process) bool { return s.count(history.Started, p.name) > s.count(history.Done, p.name) })
		})
		workers = append(workers, start())
		publish()
		workers[len(workers)-1].saying("router ready")
		oldest.stop()
		log.Add(history.Event{Kind: history.Ended, Proc: oldest.name})
		workers = workers[1:]
	}
	workers[0].until("all are done", func() bool { return s.count(history.Done, "") >= published })
	for _, p := range workers {
		p.stop()
		log.Add(history.Event{Kind: history.Ended, Proc: p.name})
	}
	report := history.Check(slices.Concat(log.Events(), s.events()), history.Options{Topic: w.topic, Ordered: true})
	require.Empty(t, report.Violations, "%v", report)
	require.Zero(t, report.Repeats)
	t.Logf("%d processes: %v", started, report)
}

// TestK10_stopped: a worker that is stopped for longer than its session loses
// its partition. What it finishes when it goes on moves no position. It comes
// back to the group, and what it has finished does not run there again.
func TestK10_stopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	s := w.site()
	w.put(0, values("m", 5)...)
	a := s.start("a", work(2*time.Second, probe.Done))
	a.until("it is at work", func() bool { return s.count(history.Started, "a") == 5 })
	require.NoError(t, a.Process.Signal(syscall.SIGSTOP))
	b := s.start("b", work(0, probe.Hang))
	b.until("it has the messages", func() bool { return s.count(history.Started, "b") == 5 })
	if soaking() {
		rest(t, 15*time.Second)
	}
	require.NoError(t, a.Process.Signal(syscall.SIGCONT))
	a.until("its runs end", func() bool { return s.count(history.Done, "a")+s.count(history.Failed, "a") == 5 })
	a.until("it is back in the group", func() bool {
		groups, err := w.adm.DescribeGroups(t.Context(), w.group)
		return err == nil && groups[w.group].State == "Stable" && len(groups[w.group].Members) == 2
	})
	at, metadata := w.committed(0)
	require.Zero(t, at, "a position of a member that was put out")
	require.Empty(t, metadata)

	b.kill()
	eventually(t, "all is committed", func() bool { at, _ := w.committed(0); return at == 5 })
	done := map[string]int{}
	for _, e := range s.events() {
		if e.Kind == history.Done {
			done[e.ID]++
		}
	}
	require.Len(t, done, 5)
	for id, n := range done {
		require.Equal(t, 1, n, "%s had its effect more than once", id)
	}
	a.stop()
}

func rest(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// TestHandlerThatNeverReturns: the message that it hangs on outlasts any number
// of kills, and each process begins anew with it.
func TestHandlerThatNeverReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	s := w.site()
	w.put(0, values("m", 3)...)
	kills := scale(5, 30)
	for n := range kills {
		p := s.start(fmt.Sprint("hangs-", n), "--instance=pod-0", work(0, probe.Hang))
		p.until("it hangs", func() bool { return s.count(history.Started, p.name) == 3 })
		p.kill()
		at, _ := w.committed(0)
		require.Zero(t, at)
	}
	p := s.start("returns", "--instance=pod-0")
	p.until("all are done", func() bool { return s.count(history.Done, p.name) == 3 })
	p.stop()
	for _, e := range s.events() {
		require.LessOrEqual(t, e.Attempt, 1, "a kill is no failed attempt")
	}
	at, _ := w.committed(0)
	require.EqualValues(t, 3, at)
	depth, err := w.connect().Depth(within(t), w.topic, w.group)
	require.NoError(t, err)
	require.Zero(t, depth.Ready)
}

// TestKilledBehindAStuckMessage: behind a message whose handler does not return
// many others are done. What a kill has done again is what the last commit does
// not say, and that is little.
func TestKilledBehindAStuckMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.URL(t, "kafka"), 1)
	s := w.site()
	n := scale(5_000, 100_000)
	p := w.producer()
	for from := 0; from < n; from += 1_000 {
		msgs := make([]*message.Message, 1_000)
		for i := range msgs {
			msgs[i] = message.NewMessage(fmt.Sprint("m-", from+i), nil)
			msgs[i].Metadata.Set(transport.KeyHeader, fmt.Sprint("k-", from+i))
		}
		require.NoError(t, p.Publish(within(t), w.topic, msgs...))
	}
	const slots, held = 64, 512
	args := []string{
		"--instance=pod-0", "--set=consumers.c.handler.probe={work: 20ms, stuck: m-0}",
		fmt.Sprint("--set=consumers.c.concurrency=", slots), fmt.Sprint("--set=consumers.c.prefetch=", held),
	}
	first := s.start("first", args...)
	first.until("many are done", func() bool { return s.count(history.Done, "first") >= n/4 })
	first.kill()
	done := s.count(history.Done, "first")
	require.Less(t, done, n-1, "it was killed at work")
	at, metadata := w.committed(0)
	require.Zero(t, at, "the first message is stuck")
	said, _, top := kafka.DoneAhead(metadata)
	require.Positive(t, top)

	second := s.start("second", args...)
	all := map[int64]bool{}
	second.until("all others are done", func() bool {
		for _, e := range s.events() {
			if e.Kind == history.Done {
				all[e.Offset] = true
			}
		}
		return len(all) == n-1
	})
	second.kill()
	again := s.count(history.Done, "") - (n - 1)
	for _, e := range s.events() {
		require.False(t, e.Proc == "second" && e.Kind == history.Started && said(e.Offset), "%s is in the commit, and ran again", e.ID)
	}
	const untold = 4096 // what the engine lets be done without the broker being told
	require.LessOrEqual(t, again, held+untold)
	t.Logf("%d done before the kill, %d of them again", done, again)
}

// TestMemory: a worker with a slow handler takes no more than 200 MiB for a
// large backlog of 1 KiB messages.
func TestMemory(t *testing.T) {
	t.Parallel()
	const limit, body = 200 << 20, 1 << 10
	w := newWorld(t, brokertest.URL(t, "kafka"), 4)
	s := w.site()
	backlog, handled := scale(60_000, 1_000_000), scale(2_000, 10_000)
	for n := 0; n < backlog; n += 5_000 {
		rs := make([]*kgo.Record, 5_000)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: w.topic, Partition: int32(i % 4), Key: fmt.Append(nil, n+i), Value: []byte(strings.Repeat(string(rune('a'+rand.IntN(26))), body))}
		}
		require.NoError(t, w.raw.ProduceSync(within(t), rs...).FirstErr())
	}
	p := s.start("slow", work(50*time.Millisecond, probe.Done), "--set=consumers.c.concurrency=64")
	p.until("much is handled", func() bool { return s.count(history.Done, "") >= handled })
	peak := p.peak()
	p.stop()
	require.Less(t, peak, int64(limit))
	t.Logf("peak resident memory %d MiB, with a backlog of %d", peak>>20, backlog)
}
