package runtimetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// ledger is what was seen of a worker: who reads what, what became of each
// message, and what was published.
type ledger struct {
	epoch   time.Time
	changed chan struct{} // something was written

	mu      sync.Mutex
	readers map[string]reader // by consumer
	byID    map[storyID]*story
	stories []*story // in the order they began
	running map[*transport.Attempt]*run
	dead    map[string]bool // topics
	outputs []output
	orders  []order
}

// reader is a consumer as its broker knows it.
type reader struct {
	broker, consumer, group string
	topics                  []string
}

// story is what one consumer did with one message.
type story struct {
	storyID

	id       string // of the message
	topic    string
	received bool
	acked    bool
	runs     []*run
	asked    int // runs before it were asked for by ExpectRetried
}

type storyID struct{ consumer, coordinates string }

// run is one attempt. An outcome of zero means that it is under way.
type run struct {
	number   int // 0: the handler was never reached
	began    time.Duration
	returned bool // the handler; what it leaves is to be confirmed
	outcome  transport.Outcome
	wait     time.Duration // of Retried, once the broker was told
	err      string
}

type output struct {
	topic string
	msg   *message.Message
	at    time.Duration
}

func newLedger() *ledger {
	return &ledger{
		epoch: time.Now(), changed: make(chan struct{}, 1), readers: make(map[string]reader), byID: make(map[storyID]*story),
		running: make(map[*transport.Attempt]*run), dead: make(map[string]bool),
	}
}

// write does something under the lock and tells that it was done.
func (l *ledger) write(fn func()) {
	l.mu.Lock()
	fn()
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *ledger) now() time.Duration { return time.Since(l.epoch) }

func (l *ledger) deadTopic(name string) { l.write(func() { l.dead[name] = true }) }

func (l *ledger) joined(r reader) { l.write(func() { l.readers[r.consumer] = r }) }

func (l *ledger) received(consumer string, d *transport.Delivery) {
	l.write(func() { l.story(consumer, d.Coordinates(), d.Topic, d.ID).received = true })
}

func (l *ledger) published(topic string, m *message.Message) {
	l.write(func() {
		l.outputs = append(l.outputs, output{topic, &message.Message{
			UUID: m.UUID, Payload: slices.Clone(m.Payload), Metadata: maps.Clone(m.Metadata),
		}, l.now()})
	})
}

// story finds or begins one. mu is held.
func (l *ledger) story(consumer, coordinates, topic, id string) *story {
	at := storyID{consumer, coordinates}
	s := l.byID[at]
	if s == nil {
		s = &story{storyID: at, topic: topic, id: id}
		l.byID[at] = s
		l.stories = append(l.stories, s)
	}
	return s
}

// begin notes that a run has begun, once, and will learn what it came to.
func (l *ledger) begin(a *transport.Attempt) (r *run) {
	l.mu.Lock()
	r = l.running[a]
	l.mu.Unlock()
	if r != nil {
		return r
	}
	l.write(func() {
		d := a.Delivery()
		s := l.story(a.Consumer(), d.Coordinates(), d.Topic, d.ID)
		r = &run{number: a.Number(), began: l.now()}
		s.runs = append(s.runs, r)
		l.running[a] = r
	})
	transport.OnSettle(a, func(_ context.Context, o transport.Outcome) error {
		l.write(func() {
			r.outcome = o
			delete(l.running, a)
		})
		return nil
	})
	return r
}

// told notes what the broker was told, which of a failed run is how long it waits.
func (l *ledger) told(consumer string, st *transport.Settlement) {
	l.write(func() {
		s := l.story(consumer, st.Delivery.Coordinates(), st.Delivery.Topic, st.Delivery.ID)
		switch st.Verdict {
		case transport.Ack:
			s.acked = true
		case transport.Record, transport.Delay:
			s.waits(st, l.now())
		case transport.Release:
		}
	})
}

// waits notes a wait. Of a run that failed before it came to the handler, it
// is the first that is heard.
func (s *story) waits(st *transport.Settlement, now time.Duration) {
	for _, r := range slices.Backward(s.runs) {
		if r.number == st.Attempts {
			if r.wait == 0 {
				r.wait = st.After
			}
			if r.err == "" {
				r.err = st.LastError
			}
			return
		}
	}
	if st.Attempts > 0 {
		s.runs = append(s.runs, &run{number: st.Attempts, began: now, outcome: transport.Retried, wait: st.After, err: st.LastError})
	}
}

// final is the outcome that a story has ended with; zero if it has not.
func (s *story) final() transport.Outcome {
	if len(s.runs) == 0 {
		return 0
	}
	switch o := s.runs[len(s.runs)-1].outcome; o {
	case transport.Handled, transport.Duplicate, transport.Skipped, transport.Dead:
		return o
	case transport.Waiting, transport.Retried, transport.Interrupted:
	}
	return 0
}

// explain gives an outcome to messages that were acked by a link outside of
// dedup and handler, where nobody looks: those that the engine has counted
// beyond the runs that were seen.
func (l *ledger) explain(status []runtime.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.stories {
		if !s.acked || s.final() != 0 {
			continue
		}
		i := slices.IndexFunc(status, func(st runtime.Status) bool { return st.Consumer == s.consumer })
		for _, o := range [...]transport.Outcome{transport.Skipped, transport.Duplicate, transport.Dead, transport.Handled} {
			if i >= 0 && status[i].Count(o) > l.count(s.consumer, o) {
				s.runs = append(s.runs, &run{began: l.now(), outcome: o})
				break
			}
		}
	}
}

// count is how often a consumer was seen to come to an outcome. mu is held.
func (l *ledger) count(consumer string, o transport.Outcome) (n int64) {
	for _, s := range l.stories {
		for _, r := range s.runs {
			if s.consumer == consumer && r.outcome == o {
				n++
			}
		}
	}
	return n
}

// drained tells whether nothing waits in any group.
func (l *ledger) drained(brokers map[string]*memory.Broker) bool {
	l.mu.Lock()
	readers := slices.Collect(maps.Values(l.readers))
	l.mu.Unlock()
	for _, r := range readers {
		for _, topic := range r.topics {
			d, err := brokers[r.broker].Transport().Depth(context.Background(), topic, r.group)
			if err != nil || d.Ready+d.Delayed+d.Held > 0 {
				return false
			}
		}
	}
	return true
}
