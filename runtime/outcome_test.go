package runtime_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

var errBoom = errors.New("boom")

type permanent struct{ error }

func (permanent) Permanent() bool { return true }

type later struct {
	error
	d time.Duration
}

func (l later) RetryAfter() time.Duration { return l.d }

type skip struct{ error }

func (skip) Skip() bool { return true }

// TestOutcomes holds each row of the outcome table: what the chain says, what
// it is counted as, how often and when the handler ran, and what is left.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		h        func(attempt int, m *message.Message) ([]*message.Message, error)
		waits    bool // the first run finds it claimed by somebody else
		policy   func(*transport.Policy)
		outcomes map[transport.Outcome]int64
		gaps     []time.Duration // between runs
		dead     bool
		reason   string
	}{
		"nil": {
			h:        func(int, *message.Message) ([]*message.Message, error) { return nil, nil },
			outcomes: map[transport.Outcome]int64{transport.Handled: 1},
		},
		"already done": {
			h:        func(int, *message.Message) ([]*message.Message, error) { return nil, transport.Already },
			outcomes: map[transport.Outcome]int64{transport.Duplicate: 1},
		},
		"claimed by somebody else": {
			h:        func(int, *message.Message) ([]*message.Message, error) { return nil, nil },
			waits:    true,
			outcomes: map[transport.Outcome]int64{transport.Waiting: 1, transport.Handled: 1},
			gaps:     []time.Duration{3 * time.Second},
		},
		"skip": {
			h:        func(int, *message.Message) ([]*message.Message, error) { return nil, skip{errBoom} },
			outcomes: map[transport.Outcome]int64{transport.Skipped: 1},
		},
		"transient, then success": {
			h: func(n int, _ *message.Message) ([]*message.Message, error) {
				if n < 3 {
					return nil, errBoom
				}
				return nil, nil
			},
			outcomes: map[transport.Outcome]int64{transport.Retried: 2, transport.Handled: 1},
			gaps:     []time.Duration{time.Second, 2 * time.Second},
		},
		"attempts used up": {
			h: func(int, *message.Message) ([]*message.Message, error) { return nil, errBoom },
			outcomes: map[transport.Outcome]int64{
				transport.Retried: 4, transport.Dead: 1,
			},
			gaps: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
			dead: true, reason: transport.ReasonExhausted,
		},
		"retry after": {
			h: func(n int, _ *message.Message) ([]*message.Message, error) {
				if n == 1 {
					return nil, later{errBoom, 5 * time.Second}
				}
				return nil, nil
			},
			outcomes: map[transport.Outcome]int64{transport.Retried: 1, transport.Handled: 1},
			gaps:     []time.Duration{5 * time.Second},
		},
		"permanent": {
			h:        func(int, *message.Message) ([]*message.Message, error) { return nil, permanent{errBoom} },
			outcomes: map[transport.Outcome]int64{transport.Dead: 1},
			dead:     true, reason: transport.ReasonPermanent,
		},
		"permanent, dropped": {
			h:        func(int, *message.Message) ([]*message.Message, error) { return nil, permanent{errBoom} },
			policy:   func(p *transport.Policy) { p.DeadLetter.Mode = transport.DeadDrop },
			outcomes: map[transport.Outcome]int64{transport.Dead: 1},
		},
		"permanent, blocking": {
			h: func(n int, _ *message.Message) ([]*message.Message, error) {
				if n < 3 {
					return nil, permanent{errBoom}
				}
				return nil, nil
			},
			policy:   func(p *transport.Policy) { p.DeadLetter.Mode = transport.DeadBlock },
			outcomes: map[transport.Outcome]int64{transport.Retried: 2, transport.Handled: 1},
			gaps:     []time.Duration{8 * time.Second, 8 * time.Second},
		},
		"panic": {
			h: func(n int, _ *message.Message) ([]*message.Message, error) {
				if n == 1 {
					panic("no")
				}
				return nil, nil
			},
			outcomes: map[transport.Outcome]int64{transport.Retried: 1, transport.Handled: 1},
			gaps:     []time.Duration{time.Second},
		},
		"Goexit": {
			h: func(n int, _ *message.Message) ([]*message.Message, error) {
				if n == 1 {
					goruntime.Goexit()
				}
				return nil, nil
			},
			outcomes: map[transport.Outcome]int64{transport.Retried: 1, transport.Handled: 1},
			gaps:     []time.Duration{time.Second},
		},
		"timeout": {
			h: func(n int, m *message.Message) ([]*message.Message, error) {
				if n == 1 {
					<-m.Context().Done()
					return nil, context.Cause(m.Context())
				}
				return nil, nil
			},
			outcomes: map[transport.Outcome]int64{transport.Retried: 1, transport.Handled: 1},
			gaps:     []time.Duration{61 * time.Second},
		},
		"output that cannot be published": {
			h: func(int, *message.Message) ([]*message.Message, error) {
				return []*message.Message{msg("", "", "x")}, nil
			},
			outcomes: map[transport.Outcome]int64{transport.Dead: 1},
			dead:     true, reason: transport.ReasonUnpublished,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worlds(t, func(w *world) {
				policy := w.policy(func(p *transport.Policy) {
					if tt.policy != nil {
						tt.policy(p)
					}
				})
				w.consume(func(m *message.Message) ([]*message.Message, error) {
					if tt.waits && len(w.runsOf(m.UUID)) == 1 {
						return nil, &transport.Wait{After: 3 * time.Second}
					}
					return tt.h(transport.AttemptFrom(m.Context()).Number(), m)
				}, policy)
				w.publish("in", msg("m", "k", "body", "h", "v"))
				s := w.settled()
				for o := transport.Handled; o <= transport.Interrupted; o++ {
					require.Equal(w, tt.outcomes[o], s.Count(o), o.String())
				}
				runs := w.runsOf("m")
				require.Len(w, runs, len(tt.gaps)+1)
				for i, gap := range tt.gaps {
					require.Equal(w, gap, runs[i+1].at.Sub(runs[i].at), "wait %d", i+1)
				}
				depth, err := w.tr.Depth(context.Background(), "in", "g")
				require.NoError(w, err)
				require.Zero(w, depth.Ready+depth.Delayed+depth.Held, "acked")
				if policy.DeadLetter.Mode != transport.DeadToTopic {
					return
				}
				letters := w.read("in--g--dead")
				if !tt.dead {
					require.Empty(w, letters)
					return
				}
				require.Len(w, letters, 1)
				d := letters[0]
				require.Equal(w, "m", d.ID)
				require.Equal(w, "body", string(d.Payload))
				require.Equal(w, "v", d.Headers.Get("h"))
				require.Equal(w, "k", d.Key)
				require.Equal(w, tt.reason, d.Headers.Get(transport.DeadReasonHeader))
				require.Equal(w, strconv.Itoa(len(runs)), d.Headers.Get(transport.DeadAttemptsHeader))
				require.Equal(w, "in", d.Headers.Get("topic_poisoned"))
			})
		})
	}
}
