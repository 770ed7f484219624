package runtime

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// State is what a consumer is doing.
type State string

// Values of State.
const (
	StateStarting     State = "starting"     // has not reached its broker yet
	StateRunning      State = "running"      // takes and handles messages
	StateHeld         State = "held"         // partitions paused: too much waits behind failing messages
	StateBlocked      State = "blocked"      // an output, a dead letter, a store or the broker does not take what it must, or a partition cannot be read
	StateReconnecting State = "reconnecting" // the broker is lost
	StateDraining     State = "draining"     // finishes what runs
	StateStopped      State = "stopped"
	StateFailed       State = "failed" // refused at the start
)

// Status is what there is to know of one consumer, at one moment.
type Status struct {
	Consumer string   `json:"consumer"`
	Topics   []string `json:"topics"`
	Group    string   `json:"group"`

	State     State     `json:"state"`
	Why       string    `json:"why,omitempty"`
	Since     time.Time `json:"since"`     // when it came into this state
	Connected bool      `json:"connected"` // there is a session with the broker

	Running       int           `json:"running"`   // attempts
	InFlight      int           `json:"in_flight"` // delivered, not settled
	InFlightBytes int64         `json:"in_flight_bytes"`
	Parked        int           `json:"parked"`
	HeldByOrder   int           `json:"held_by_order"` // behind parked ones of their order
	Oldest        time.Duration `json:"-"`             // of the attempts that run
	Partitions    int           `json:"partitions"`

	Received    int64            `json:"received"` // deliveries
	Outcomes    map[string]int64 `json:"outcomes"` // by transport.Outcome
	Outputs     int64            `json:"outputs"`  // confirmed
	Dead        map[string]int64 `json:"dead"`     // by the Reason constants of transport, and "other"
	Repeats     map[string]int64 `json:"repeats"`  // failures to tell a broker or a store something, by what it was
	LastError   string           `json:"last_error,omitempty"`
	LastErrorAt time.Time        `json:"last_error_at,omitzero"`

	Unsettled     int   `json:"unsettled"`           // done with, and the broker is not told yet
	Lost          int64 `json:"lost,omitempty"`      // acked on receipt, and could not run to its end
	Abandoned     int   `json:"abandoned,omitempty"` // still ran when the drain ended
	DrainTimedOut bool  `json:"drain_timed_out,omitempty"`

	partial bool // some of what it should read is left out
	counts  [transport.Interrupted + 1]int64
	repeats [stepSettle + 1]int64
}

// reasonOther is any reason that is none of ours: an error can name its own.
const reasonOther = "other"

func newStatus(name string, topics []string, p transport.Policy) Status {
	return Status{
		Consumer: name, Topics: topics, Group: p.Group, State: StateStarting,
		Dead: map[string]int64{
			transport.ReasonExhausted: 0, transport.ReasonPermanent: 0, transport.ReasonUndecodable: 0,
			transport.ReasonIDReused: 0, transport.ReasonUnpublished: 0, reasonOther: 0,
		},
	}
}

// Count is how often an outcome came.
func (s Status) Count(o transport.Outcome) int64 { return s.Outcomes[o.String()] }

// step is something that is repeated until it succeeds.
type step uint8

const (
	stepOutput step = iota
	stepDeadLetter
	stepHook
	stepSettle
)

var stepNames = [...]string{"output", "dead letter", "settlement hook", "settlement"}

// of names a step and what it concerns.
func (s step) of(topic string) string {
	if topic == "" {
		return stepNames[s]
	}
	return stepNames[s] + " " + topic
}

// trouble is something that goes on failing while the consumer tries it again.
type trouble struct {
	text  string
	since time.Time
}

// Status tells of every consumer, in the order they were added.
func (r *Router) Status() []Status {
	r.mu.Lock()
	consumers := r.consumers
	r.mu.Unlock()
	out := make([]Status, len(consumers))
	for i, c := range consumers {
		out[i] = c.snapshot()
	}
	return out
}

// leftOutGrace is how long something may be left out, as in each rebalance,
// before that is a state.
const leftOutGrace = 3 * time.Second

func (c *consumer) snapshot() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Topics = slices.Clone(s.Topics)
	s.Running, s.InFlight, s.InFlightBytes = c.q.running, c.q.count, c.q.bytes
	s.Parked, s.HeldByOrder = c.q.parked, c.q.stuck
	s.Partitions = len(c.q.spells)
	if s.Connected = c.session != nil; s.Connected {
		s.Unsettled = c.session.untold()
	}
	s.Dead = maps.Clone(s.Dead)
	s.Repeats = make(map[string]int64, len(s.repeats))
	for i, n := range s.repeats {
		s.Repeats[strings.ReplaceAll(stepNames[i], " ", "_")] = n
	}
	now := c.sinceEpoch()
	for w := range c.pool {
		if since := w.since.Load(); since > 0 {
			s.Oldest = max(s.Oldest, time.Duration(now-since))
		}
	}
	s.Outcomes = make(map[string]int64, len(s.counts))
	for o := transport.Handled; o <= transport.Interrupted; o++ {
		s.Outcomes[o.String()] = s.counts[o]
	}
	if s.State == StateRunning {
		for what, t := range c.troubles {
			s.State, s.Since, s.Why = StateBlocked, t.since, what+": "+t.text
		}
	}
	if s.Connected {
		if p, ok := c.session.c.(transport.Partial); ok {
			why, since := p.LeftOut()
			s.partial = why != ""
			if s.partial && s.State == StateRunning && time.Since(since) >= leftOutGrace {
				s.State, s.Since, s.Why = StateBlocked, since, why
			}
		}
	}
	if s.State == StateRunning && c.over {
		s.State, s.Why = StateHeld, "half of the prefetch or more waits behind messages that fail, or whose handler does not return"
	}
	return s
}

// count adds to an outcome. mu is held.
func (c *consumer) count(o transport.Outcome) { c.status.counts[o]++ }

// countDead adds to a reason. mu is held.
func (c *consumer) countDead(reason string) {
	if _, known := c.status.Dead[reason]; !known {
		reason = reasonOther
	}
	c.status.Dead[reason]++
}

func (c *consumer) countOutputs(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Outputs += int64(n)
}

// setState changes the state.
func (c *consumer) setState(s State, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.State != s {
		c.status.Since = time.Now()
	}
	c.status.State, c.status.Why = s, brief(err)
}

// setTrouble notes that something goes on failing, and logs it when it begins.
func (c *consumer) setTrouble(s step, topic string, err error) {
	what, text, now := s.of(topic), brief(err), time.Now()
	c.mu.Lock()
	c.status.repeats[s]++
	t, known := c.troubles[what]
	if !known {
		t.since = now
	}
	t.text = text
	c.troubles[what] = t
	c.status.LastError, c.status.LastErrorAt = what+": "+text, now
	c.mu.Unlock()
	if !known {
		c.log.WarnContext(c.base, "tried again until it succeeds", "what", what, "error", text)
	}
}

func (c *consumer) clearTrouble(s step, topic string) {
	what := s.of(topic)
	c.mu.Lock()
	t, known := c.troubles[what]
	delete(c.troubles, what)
	c.mu.Unlock()
	if known {
		c.log.InfoContext(c.base, "succeeds again", "what", what, "after", time.Since(t.since))
	}
}

// sampler lets through so many events of a second and counts the others.
type sampler struct {
	second  time.Time
	n       int
	skipped int
}

const samplesPerSecond = 5

func (s *sampler) allow(now time.Time) (skipped int, ok bool) {
	if now.Sub(s.second) >= time.Second {
		s.second, s.n = now, 0
	}
	if s.n++; s.n > samplesPerSecond {
		s.skipped++
		return 0, false
	}
	skipped, s.skipped = s.skipped, 0
	return skipped, true
}

// WaitIdle returns when every consumer has started and, for as long as quiet,
// nothing waited, was delayed or in flight in any of their groups, nor was
// anything left out that should be read. A transport that cannot count is taken
// to be empty while nothing is in flight.
func (r *Router) WaitIdle(ctx context.Context, quiet time.Duration) error {
	select {
	case <-r.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	step := max(quiet/10, 10*time.Millisecond)
	tick := time.NewTicker(step)
	defer tick.Stop()
	since := time.Now()
	received := int64(-1)
	for {
		idle, n := r.idle(ctx)
		if !idle || n != received {
			received, since = n, time.Now()
		}
		if time.Since(since) >= quiet {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// idle tells whether nothing is in flight or waits, and how many deliveries
// there were so far.
func (r *Router) idle(ctx context.Context) (bool, int64) {
	var received int64
	r.mu.Lock()
	consumers := r.consumers
	r.mu.Unlock()
	for _, c := range consumers {
		s := c.snapshot()
		received += s.Received
		if s.InFlight+s.Unsettled > 0 || !s.Connected || s.partial {
			return false, received
		}
		for _, tp := range c.topics {
			if !c.caps.Depth {
				continue
			}
			d, err := c.t.Depth(ctx, tp, c.p.Group)
			if err != nil || d.Ready+d.Delayed+d.Held > 0 {
				return false, received
			}
		}
	}
	return true, received
}
