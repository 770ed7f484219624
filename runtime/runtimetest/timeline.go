package runtimetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// maxStories bounds how many messages a timeline shows.
const maxStories = 20

// Timeline is what has happened so far: each message of each consumer, with
// its attempts.
func (k *Kit) Timeline() string {
	return strings.TrimPrefix(k.timelineOf(k.ledger.of(k.only, nil)), "\n")
}

// fail ends the test with what was expected and what became of it.
func (k *Kit) fail(want string, unlike []*story) {
	k.Helper()
	select {
	case <-k.ended:
		k.Fatalf("want %s, and the worker has ended: %v%s", want, k.err, k.timelineOf(unlike))
	default:
	}
	got := "nothing"
	k.ledger.read(func() {
		if len(unlike) > 0 {
			s := unlike[0]
			for _, o := range unlike {
				if o.final() != 0 { // says more than one that is still under way
					s = o
					break
				}
			}
			got = fmt.Sprintf("message %s of %q %s", s.id, s.consumer, s.now(k.ledger.now()))
		}
	})
	k.Fatalf("want %s, got: %s%s", want, got, k.timelineOf(unlike))
}

func (k *Kit) timelineOf(stories []*story) string {
	var b strings.Builder
	now := k.ledger.now()
	k.ledger.read(func() {
		for i, s := range stories {
			if i == maxStories {
				fmt.Fprintf(&b, "\n… and %d more messages", len(stories)-maxStories)
				break
			}
			fmt.Fprintf(&b, "\n%s: message %s of topic %q %s", s.consumer, s.id, s.topic, s.now(now))
			for _, r := range s.runs {
				b.WriteString("\n    " + r.line())
			}
		}
	})
	for _, s := range k.router.Status() {
		if s.State != runtime.StateRunning && s.State != runtime.StateStopped {
			fmt.Fprintf(&b, "\nconsumer %s is %s: %s", s.Consumer, s.State, s.Why)
		}
	}
	fmt.Fprintf(&b, "\nnow +%v", now.Round(time.Millisecond))
	return b.String()
}

// line is one attempt: when it began, its number, what it came to, its wait, its error.
func (r *run) line() string {
	what := "attempt " + fmt.Sprint(r.number)
	if r.number == 0 {
		what = "not run"
	}
	outcome := r.outcome.String()
	switch {
	case r.outcome == 0 && r.returned:
		outcome = "to be confirmed"
	case r.outcome == 0:
		outcome = "runs"
	}
	if r.wait > 0 {
		outcome += ", again in " + r.wait.Round(time.Millisecond).String()
	}
	line := fmt.Sprintf("%-10s %-10s %s", "+"+r.began.Round(time.Millisecond).String(), what, outcome)
	if r.err != "" {
		line += ": " + r.err
	}
	return line
}

// now says in a few words how a message stands.
func (s *story) now(at time.Duration) string {
	if o := s.final(); o != 0 {
		return "is " + o.String()
	}
	if len(s.runs) == 0 {
		if s.received {
			return "waits for its turn"
		}
		return "was not received"
	}
	switch r := s.runs[len(s.runs)-1]; r.outcome {
	case 0:
		if r.returned {
			return "was run, and what the run left is not confirmed"
		}
		return fmt.Sprintf("runs for %v", (at - r.began).Round(time.Millisecond))
	case transport.Retried, transport.Waiting, transport.Interrupted,
		transport.Handled, transport.Duplicate, transport.Skipped, transport.Dead:
		return fmt.Sprintf("waits for attempt %d", r.number+1)
	}
	return ""
}
