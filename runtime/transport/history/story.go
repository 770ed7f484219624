package history

import (
	"slices"
	"time"
)

// history is all events, sorted out.
type history struct {
	Options

	report   Report
	messages []*story // by the time of their first event
	keys     map[string][]*story
	byPlace  map[place][]*story
	commits  []Event
	killed   map[string]*span
	ended    map[string]time.Time
	faults   []*span
}

type place struct {
	topic     string
	partition int32
}

// span is the time from which something is wrong until it is over.
type span struct{ began, ended time.Time }

// story is what happened to one message.
type story struct {
	id, key, body        string
	attempted, published bool
	unsure               int // publishes of which nothing is known
	events               []Event
	runs                 []*run // as they began
}

// run is one run of the handler.
type run struct {
	proc     string
	hand     int64
	began    time.Time
	ended    time.Time // zero: never
	kind     Kind      // of its end
	acked    bool      // and the broker took it
	returned time.Time // zero: never given back
	revoked  time.Time // zero: never
}

func (m *story) handled() bool { return m.has(Done) || m.has(Skipped) }

func (m *story) buried() bool { return m.has(Buried) }

func (m *story) has(k Kind) bool { return !m.first(k).IsZero() }

// first is when the first event of these kinds was; zero if there is none.
func (m *story) first(kinds ...Kind) time.Time {
	for _, e := range m.events {
		if slices.Contains(kinds, e.Kind) {
			return e.At
		}
	}
	return time.Time{}
}

// read sorts events out.
func read(events []Event, o Options) *history {
	events = slices.Clone(events)
	slices.SortStableFunc(events, byTime)
	h := &history{
		Options: o, keys: map[string][]*story{}, byPlace: map[place][]*story{},
		killed: map[string]*span{}, ended: map[string]time.Time{},
	}
	byID := map[string]*story{}
	for _, e := range events {
		if h.outside(e) {
			continue
		}
		if e.Kind == Published && e.Topic == o.Dead && o.Dead != "" {
			e.Kind = Buried
		} else if o.Topic != "" && e.Topic != "" && e.Topic != o.Topic {
			continue
		}
		m := byID[e.ID]
		if m == nil {
			m = &story{id: e.ID}
			byID[e.ID] = m
			h.messages = append(h.messages, m)
		}
		h.add(m, e)
	}
	return h
}

// outside takes an event that is of no single message; false if it is of one.
func (h *history) outside(e Event) bool {
	switch k := e.Kind; {
	case k == Killed && h.killed[e.Proc] == nil:
		h.killed[e.Proc] = &span{began: e.At, ended: e.At}
	case k == Ended:
		h.ended[e.Proc] = e.At
	case k == Fault:
		h.faults = append(h.faults, &span{began: e.At, ended: never()})
	case k == Healed:
		h.heal(e.At)
	case k == Committed:
		h.commits = append(h.commits, e)
	default:
		return k == Killed
	}
	return true
}

// heal ends the faults that go on.
func (h *history) heal(at time.Time) {
	for _, f := range h.faults {
		if f.ended.Equal(never()) {
			f.ended = at
		}
	}
}

func (h *history) add(m *story, e Event) {
	m.events = append(m.events, e)
	switch e.Kind {
	case Publishing:
		if !m.attempted && e.Key != "" {
			h.keys[e.Key] = append(h.keys[e.Key], m)
		}
		m.attempted, m.key, m.body = true, e.Key, e.Body
	case Published:
		m.published = true
	case MaybeLost:
		m.unsure++
	case Delivered:
		at := place{e.Topic, e.Partition}
		if ms := h.byPlace[at]; !slices.Contains(ms[max(0, len(ms)-1):], m) {
			h.byPlace[at] = append(ms, m)
		}
	case Started:
		m.runs = append(m.runs, &run{proc: e.Proc, hand: e.Hand, began: e.At})
	case Revoked, Done, Failed, Skipped, Acking, Acked, Returned, Buried:
		for _, r := range m.runs {
			if r.proc == e.Proc && r.hand == e.Hand {
				r.add(e)
			}
		}
	case NotPublished, Committed, Ended, Killed, Fault, Healed:
	}
}

// add notes what happens to the hand-over of a run.
func (r *run) add(e Event) {
	if r.ended.IsZero() && slices.Contains([]Kind{Done, Failed, Skipped}, e.Kind) {
		r.ended, r.kind = e.At, e.Kind
	}
	r.acked = r.acked || e.Kind == Acked
	if e.Kind == Returned {
		r.returned = e.At
	}
	if e.Kind == Revoked {
		r.revoked = e.At
	}
}

// endOf is when a run was over, or its process, or its right to run.
func (h *history) endOf(r *run) time.Time {
	end := never()
	for _, t := range []time.Time{r.ended, r.revoked, h.ended[r.proc]} {
		if !t.IsZero() && t.Before(end) {
			end = t
		}
	}
	return end
}

// never is later than any event.
func never() time.Time { return time.Unix(1<<40, 0) }
