package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what a history is held to.
type Options struct {
	// Topic is what the messages in question were published to; default: any.
	// Events that have no topic count.
	Topic string
	// Dead is the topic of dead letters: what is published there is buried.
	Dead string
	// Left are the ids that the broker still had at the end, when it should
	// have had none.
	Left []string
	// Ordered: of each key, no message starts before the one before it is
	// done or buried. Without it, only first successes are in order.
	Ordered bool
	// Unordered: keys mean nothing.
	Unordered bool
	// Forgets is how many acks, of those that the broker took, it may forget
	// at each fault or kill. Default 0.
	Forgets int
	// Bound is how many messages that were done, and of whose acks nothing is
	// known, may run again at each fault or kill. Default: any number.
	Bound int
	// Async: acks are sent without an answer, so that at a fault or kill any
	// number of them may be lost.
	Async bool
}

// Violation is a rule that a history breaks.
type Violation struct {
	Rule string // R1 to R7
	ID   string // of the message
	Text string
	// Timeline is what happened to the message, in at most 20 steps.
	Timeline []Event
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", v.Rule, v.ID, v.Text)
	for _, e := range v.Timeline {
		fmt.Fprintf(&b, "\n\t%s %s %s", e.At.Format("15:04:05.000000"), e.Proc, e.Kind)
		if e.Hand != 0 {
			fmt.Fprintf(&b, " hand=%d %d/%d", e.Hand, e.Partition, e.Offset)
		}
		if e.Attempt != 0 {
			fmt.Fprintf(&b, " attempt=%d", e.Attempt)
		}
		if e.Text != "" {
			fmt.Fprintf(&b, " %q", e.Text)
		}
	}
	return b.String()
}

// Report is what a history comes to.
type Report struct {
	Violations []Violation

	Published int // confirmed
	Handled   int // of these, done or skipped
	Buried    int
	Repeats   int // runs of messages that had been done before
	Faults    int // and kills
}

// String is a line of counts, and the first violations.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d published, %d handled, %d buried, %d run again after they were done, %d faults and kills, %d violations",
		r.Published, r.Handled, r.Buried, r.Repeats, r.Faults, len(r.Violations))
	for _, v := range r.Violations[:min(len(r.Violations), 10)] {
		fmt.Fprintf(&b, "\n%v", v)
	}
	return b.String()
}

// Check holds the events of all processes against the rules.
func Check(events []Event, o Options) Report {
	h := read(events, o)
	h.lost()
	h.madeUp()
	h.repeated()
	h.order()
	h.overlaps()
	h.ackedEarly()
	h.committedEarly()
	for _, m := range h.messages {
		switch {
		case m.published && m.handled():
			h.report.Handled++
		case m.published && m.buried():
			h.report.Buried++
		}
		if m.published {
			h.report.Published++
		}
	}
	h.report.Faults = len(h.faults) + len(h.killed)
	return h.report
}

// broken adds a violation.
func (h *history) broken(rule string, m *story, format string, args ...any) {
	v := Violation{Rule: rule, ID: m.id, Text: fmt.Sprintf(format, args...)}
	v.Timeline = m.events[:min(len(m.events), 20)]
	h.report.Violations = append(h.report.Violations, v)
}

// lost is R1: what was published is done or buried, and nothing is left.
func (h *history) lost() {
	for _, m := range h.messages {
		left := slices.Contains(h.Left, m.id)
		switch {
		case left && (m.handled() || m.buried()):
			h.broken("R1", m, "is done, and still with the broker at the end")
		case left:
			h.broken("R1", m, "is still with the broker, %s", m.reached())
		case m.published && !m.handled() && !m.buried():
			h.broken("R1", m, "is lost: %s", m.reached())
		}
	}
}

// reached says how far a message came, and so whose fault it is that it is not done.
func (m *story) reached() string {
	switch {
	case m.has(Acking):
		return "acked, and never done: the worker's fault"
	case m.has(Returned) && !m.has(Started):
		return "delivered and given back, and never delivered again"
	case m.has(Started):
		return "run, and never to a good end; not delivered again"
	case m.has(Delivered):
		return "delivered, and never run nor delivered again"
	default:
		return "confirmed to its publisher, and never delivered: the broker's fault, or the transport's"
	}
}

// madeUp is R2: what comes was published so.
func (h *history) madeUp() {
	for _, m := range h.messages {
		for _, e := range m.events {
			if e.Kind != Delivered && e.Kind != Started {
				continue
			}
			if !m.attempted {
				h.broken("R2", m, "came, and was never published")
				break
			}
			if e.Body != m.body {
				h.broken("R2", m, "came with another body than it was published with")
				break
			}
		}
	}
}

// repeated is R4: a message runs again only for a reason.
func (h *history) repeated() {
	again, forgotten := map[*span]int{}, map[*span]int{}
	for _, m := range h.messages {
		doubles := m.unsure // publishes of which nothing was known
		for i := 1; i < len(m.runs); i++ {
			last, next := m.runs[i-1], m.runs[i]
			done := last.kind == Done || last.kind == Skipped
			if done {
				h.report.Repeats++
			}
			if h.expected(last, next) {
				continue
			}
			fault := h.struck(last, next)
			switch {
			case fault != nil && (!last.acked || h.Async):
				if done {
					again[fault]++
				}
				if h.Bound > 0 && again[fault] > h.Bound {
					h.broken("R4", m, "ran again, one of more than %d that were done before a kill or fault", h.Bound)
				}
			case fault != nil && forgotten[fault] < h.Forgets:
				forgotten[fault]++
			case doubles > 0:
				doubles--
			default:
				h.broken("R4", m, "ran again on %s, though nothing had happened to its run on %s", next.proc, last.proc)
			}
		}
	}
}

// expected tells whether a run that follows another one needs no fault for it.
func (h *history) expected(last, next *run) bool {
	switch {
	case last.kind == Failed: // its next attempt
		return true
	case last.ended.IsZero() && over(h.ended[last.proc], next.began): // left behind by a drain
		return true
	default:
		return !last.acked && (over(last.returned, next.began) || over(last.revoked, next.began))
	}
}

// struck is what happened between two runs that may have the broker hand a
// message out again.
func (h *history) struck(last, next *run) *span {
	if k := h.killed[last.proc]; k != nil && !k.began.After(next.began) {
		return k
	}
	for _, f := range h.faults {
		if !f.began.After(next.began) && !f.ended.Before(last.began) {
			return f
		}
	}
	return nil
}

// order is R5.
func (h *history) order() {
	if h.Unordered {
		return
	}
	for _, ms := range h.keys {
		var last *story
		for _, m := range ms {
			if m.unsure > 0 || !m.published || len(m.runs) == 0 {
				continue
			}
			if last != nil {
				h.inOrder(last, m)
			}
			last = m
		}
	}
}

func (h *history) inOrder(m, next *story) {
	end, nextEnd := m.first(Done, Skipped), next.first(Done, Skipped)
	if !end.IsZero() && !nextEnd.IsZero() && nextEnd.Before(end) {
		h.broken("R5", next, "of key %q is done before %s, which was published earlier", next.key, m.id)
		return
	}
	if end.IsZero() {
		end = m.first(Buried)
	}
	if h.Ordered && (end.IsZero() || next.runs[0].began.Before(end)) {
		h.broken("R5", next, "of key %q starts before %s is done, which was published earlier", next.key, m.id)
	}
}

// overlaps is R6: no message runs twice at once.
func (h *history) overlaps() {
	for _, m := range h.messages {
		for i := 1; i < len(m.runs); i++ {
			for _, last := range m.runs[:i] {
				next := m.runs[i]
				if !h.endOf(last).After(next.began) || h.struck(last, next) != nil {
					continue
				}
				h.broken("R6", m, "starts on %s while it still runs on %s", next.proc, last.proc)
			}
		}
	}
}

// ackedEarly is R7: what is acked is done, skipped or buried.
func (h *history) ackedEarly() {
	for _, m := range h.messages {
		finished := false
		for _, e := range m.events {
			if e.Kind == Acking && !finished {
				h.broken("R7", m, "is acked by %s before it is done", e.Proc)
				break
			}
			finished = finished || slices.Contains(ends(), e.Kind)
		}
	}
}

// ends are how a message may be done with.
func ends() []Kind { return []Kind{Done, Skipped, Buried} }

// committedEarly is R7 for logs: everything below a committed offset is
// done, of what was handed over by then.
func (h *history) committedEarly() {
	for _, c := range h.commits {
		for _, m := range h.byPlace[place{c.Topic, c.Partition}] {
			done := m.first(ends()...)
			for _, e := range m.events {
				if e.Kind == Delivered && e.Offset < c.Offset && e.At.Before(c.At) && (done.IsZero() || done.After(c.At)) {
					h.broken("R7", m, "is below offset %d, which %s committed before it is done", c.Offset, c.Proc)
					break
				}
			}
		}
	}
}

// over tells whether something had happened by a time.
func over(t, by time.Time) bool { return !t.IsZero() && !t.After(by) }

func byTime(a, b Event) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Hand, b.Hand)) }
