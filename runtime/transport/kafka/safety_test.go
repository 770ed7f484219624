package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// spot is one record.
type spot struct {
	part   int32
	offset int64
}

// judge sees every commit, and knows what is finished before the consumer is told.
type judge struct {
	topic string

	mu       sync.Mutex
	finished map[spot]bool
	written  map[int32]int64 // offsets below are there
	floor    map[int32]int64 // and below these all are finished
	commits  int
	ahead    int
	wrong    string
}

func (j *judge) watch(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		j.see(r.(*kmsg.OffsetCommitRequest)) //nolint:forcetypeassert // by its key
		return nil, nil, false
	})
}

func (j *judge) see(r *kmsg.OffsetCommitRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			j.commits++
			metadata := ""
			if p.Metadata != nil {
				metadata = *p.Metadata
			}
			done, _, top := kafka.DoneAhead(metadata)
			for j.finished[spot{p.Partition, j.floor[p.Partition]}] {
				j.floor[p.Partition]++
			}
			for offset := j.floor[p.Partition]; offset < max(p.Offset, top); offset++ {
				if (offset < p.Offset || done(offset)) && !j.finished[spot{p.Partition, offset}] && j.wrong == "" {
					j.wrong = fmt.Sprintf("partition %d: %d is committed, done ahead up to %d, and %d is not finished", p.Partition, p.Offset, top, offset)
				}
			}
			if top > p.Offset {
				j.ahead++
			}
		}
	}
}

func (j *judge) verdict() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.wrong
}

// finish tells the judge, and then the consumer.
func (j *judge) finish(tb TB, c transport.Consumer, ds []*transport.Delivery) {
	j.mu.Lock()
	for _, d := range ds {
		j.finished[spot{d.Partition, d.Offset}] = true
	}
	j.mu.Unlock()
	settle(tb, c, transport.Ack, ds...)
}

// TestK14_commitSafety has messages finish in random orders, some released,
// the consumer closed or killed in between, and looks at every commit: nothing
// that is not finished lies below it, or is said to be done ahead of it. What
// is finished does not come again after a Close.
func TestK14_commitSafety(t *testing.T) {
	t.Parallel()
	const parts = 3
	w, cluster := fake(t, parts)
	w.o.CommitInterval = time.Nanosecond
	w.o.SessionTimeout = time.Second
	j := &judge{topic: w.topic, finished: map[spot]bool{}, written: map[int32]int64{}, floor: map[int32]int64{}}
	j.watch(cluster)
	tr := w.connect()
	c := w.join(tr)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	held := map[spot]*transport.Delivery{}

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	rounds := scale(10_000, 100_000)
	// reopen is what the engine does.
	reopen := func() {
		require.NoError(t, c.Close(context.Background()))
		clear(held)
		c = w.join(tr)
	}
	for range rounds {
		j.write(t, w, dice)
		if !j.receive(t, c, held, 1+dice.Int64N(1000)) {
			reopen()
			continue
		}
		settle(t, c, transport.Release, draw(dice, held, 3)...)
		for range 1 + dice.IntN(6) {
			j.finish(t, c, draw(dice, held, 20))
		}
		require.Empty(t, j.verdict())
		switch end := dice.IntN(1000); {
		case end < 30:
			reopen()
		case end == 30:
			kafka.Kill(c)()
			clear(held)
			c = w.join(tr)
		}
	}
	require.Empty(t, j.verdict())
	for len(j.open()) > 0 {
		if !j.receive(t, c, held, 1<<20) {
			reopen()
			continue
		}
		j.finish(t, c, slices.Collect(maps.Values(held)))
		clear(held)
	}
	require.Empty(t, j.verdict())
	for part := range int32(parts) {
		at, _ := w.committed(part)
		require.Equal(t, j.written[part], at, "where partition %d stands at the end", part)
	}
	require.Positive(t, j.ahead, "commits that say what is done ahead")
	t.Logf("%d orders, %d commits, %d of them with messages done ahead", rounds, j.commits, j.ahead)
}

// write adds some records.
func (j *judge) write(t *testing.T, w *world, dice *rand.Rand) {
	t.Helper()
	var rs []*kgo.Record
	for range 1 + dice.IntN(12) {
		rs = append(rs, &kgo.Record{Topic: w.topic, Partition: dice.Int32N(3), Value: []byte("x")})
	}
	require.NoError(t, w.raw.ProduceSync(context.Background(), rs...).FirstErr())
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range rs {
		j.written[r.Partition] = max(j.written[r.Partition], r.Offset+1)
	}
}

// open are the records that are not finished.
func (j *judge) open() []spot {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []spot
	for part, end := range j.written {
		for offset := j.floor[part]; offset < end; offset++ {
			if s := (spot{part, offset}); !j.finished[s] {
				out = append(out, s)
			}
		}
	}
	return out
}

// receive takes some of what is there, once there is something, or learns that
// it takes more bytes. false: the group has put the member out, as it may on a
// busy machine.
func (j *judge) receive(tb TB, c transport.Consumer, held map[spot]*transport.Delivery, bytes int64) bool {
	if len(j.open()) == len(held) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ds, err := c.Receive(ctx, 30, bytes)
	if _, more := errors.AsType[transport.NeedBytes](err); more {
		return true
	}
	if errors.Is(err, kerr.UnknownMemberID) {
		return false
	}
	require.NoError(tb, err, "%d are held of %d", len(held), len(j.open()))
	for _, d := range ds {
		s := spot{d.Partition, d.Offset}
		require.NotContains(tb, held, s, "handed out twice")
		j.mu.Lock()
		finished := j.finished[s]
		j.mu.Unlock()
		require.False(tb, finished, "%v is finished and came again", s)
		held[s] = d
	}
	return true
}

// draw takes some of what is held, in any order.
func draw(dice *rand.Rand, held map[spot]*transport.Delivery, most int) []*transport.Delivery {
	keys := slices.SortedFunc(maps.Keys(held), func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.offset, b.offset))
	})
	dice.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	var out []*transport.Delivery
	for _, k := range keys[:dice.IntN(min(most, len(keys))+1)] {
		out = append(out, held[k])
		delete(held, k)
	}
	return out
}
