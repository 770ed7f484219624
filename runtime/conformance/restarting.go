package conformance

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/conformance/probe"
	"github.com/leat-io/leat/runtime/transport/history"
)

// brokerRestarts: workers and publishers outlast a broker that is restarted
// under load, again and again.
func brokerRestarts(r *rig) { r.outlast(r.broker.Restart) }

// brokerCrashes: the same for one that is killed.
func brokerCrashes(r *rig) { r.outlast(r.broker.Crash) }

func (r *rig) outlast(trouble func(TB)) {
	r.Helper()
	r.hurt = true
	s := r.declaredSite()
	args := []string{handler("5ms", probe.Done), "--set=consumers.c.concurrency=32", "--set=consumers.c.prefetch=128"}
	workers := []*process{s.start(args...), s.start(args...)}
	var want []string
	var back []time.Duration
	for round := range r.o.scale(2, 3, 10) {
		var batches [][]string
		failed := make(chan error, 1)
		load := func(from, n int) error {
			for i := range n {
				msgs := prefixed(fmt.Sprintf("m%d-%d-", round, from+i), keyed(10, 3))
				if err := r.insist(s.topic, msgs...); err != nil {
					return err
				}
				batches = append(batches, ids(msgs))
			}
			return nil
		}
		require.NoError(r, load(0, 4))
		go func() { failed <- load(4, 8) }()
		r.log.Add(history.Event{Kind: history.Fault, Text: fmt.Sprint("round ", round)})
		trouble(r.TB)
		up := time.Now()
		require.NoError(r, <-failed)
		for _, b := range batches {
			want = append(want, b...)
		}
		s.until("consumption is back", func(t *traces) bool { return len(t.done) >= len(want) }, workers...)
		back = append(back, time.Since(up))
		r.log.Add(history.Event{Kind: history.Healed})
	}
	for _, p := range workers {
		p.stop()
	}
	report := s.finish(want)
	r.Logf("all was handled %v after the broker was back: %v", back, report)
}
