package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Bounds on what the fetches of a moment come to, below and above a part of
// what may be held, and on one of them.
const (
	smallestFetch = 1 << 20
	largestFetch  = 50 << 20
	leastFetch    = 256 << 10
)

// sizer says how much a fetch is to ask for, so that those of all brokers
// together come to so much memory. Brokers count bytes as they are stored:
// compressed, and without what a record needs here beside its bytes.
//
// It is of one partition, if that has so much. Brokers cut the last batch of
// each partition short, which is fetched again: where batches are large, a little
// of each costs a third more.
type sizer struct {
	held int64 // bytes that may be held
	want int64 // bytes of memory in the fetches of a moment
	told int32 // what the client was told last

	mu      sync.Mutex
	stored  int64 // bytes of the batches that came
	memory  int64 // and of their records
	brokers map[int32]bool
}

func newSizer(prefetchBytes int64) *sizer {
	s := &sizer{held: prefetchBytes, brokers: map[int32]bool{}}
	s.share(0)
	s.told = int32(s.want) //nolint:gosec // at most largestFetch
	return s
}

// share has several partitions be at hand at a time, where there are several:
// handlers of different partitions' keys work at once only then.
func (s *sizer) share(partitions int) {
	parts := int64(3)
	if partitions == 1 {
		parts = 2
	}
	s.want = min(max(s.held/parts, smallestFetch), largestFetch)
}

var _ kgo.HookFetchBatchRead = (*sizer)(nil)

// OnFetchBatchRead counts a batch as it is stored.
func (s *sizer) OnFetchBatchRead(from kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored += int64(m.CompressedBytes)
	s.brokers[from.NodeID] = true
}

// learn takes in what the records of a poll need, and how many partitions are
// read, and tells the client of another size if that is much different.
func (s *sizer) learn(cl *kgo.Client, memory int64, partitions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share(partitions)
	s.memory += memory
	if s.memory == 0 || s.stored == 0 {
		return
	}
	size := float64(s.want) * float64(s.stored) / float64(s.memory) / float64(max(1, len(s.brokers)))
	limit := int32(min(max(int64(size), leastFetch), s.want)) //nolint:gosec // at most largestFetch
	if diff := limit - s.told; max(diff, -diff) > s.told/8 {
		s.told = limit
		cl.UpdateFetchMaxBytes(limit, limit)
	}
	if s.memory > 32*s.want { // what came lately counts most
		s.memory, s.stored = s.memory/2, s.stored/2
	}
}
