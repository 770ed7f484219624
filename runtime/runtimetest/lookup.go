package runtimetest

import (
	"fmt"
	"slices"
	"strings"
)

// meet orders the test and the attempts: each of them takes the lock.
func (l *ledger) meet() { l.read(func() {}) }

// read looks at the ledger.
func (l *ledger) read(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

// of gives the stories of messages, or all; of one consumer, or of all.
func (l *ledger) of(consumer string, msgs []*Sent) []*story {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.stories
	if len(msgs) > 0 {
		all = nil
		for _, m := range msgs {
			all = append(all, m.stories...)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s *story) bool { return consumer != "" && s.consumer != consumer })
}

// expect begins the stories of a message that was just published to a broker.
func (l *ledger) expect(broker, coordinates, topic, id string) (stories []*story) {
	for _, r := range l.readersOf(topic, "") {
		if r.broker == broker {
			l.read(func() { stories = append(stories, l.story(r.consumer, coordinates, topic, id)) })
		}
	}
	return stories
}

func (l *ledger) reader(consumer string) (r reader, ok bool) {
	l.read(func() { r, ok = l.readers[consumer] })
	return r, ok
}

// readersOf gives who reads a topic, by name.
func (l *ledger) readersOf(topic, only string) (out []reader) {
	l.read(func() {
		for _, r := range l.readers {
			if slices.Contains(r.topics, topic) && (only == "" || only == r.consumer) {
				out = append(out, r)
			}
		}
	})
	slices.SortFunc(out, func(a, b reader) int { return strings.Compare(a.consumer, b.consumer) })
	return out
}

func (l *ledger) listReaders() string {
	var out []string
	l.read(func() {
		for _, r := range l.readers {
			out = append(out, fmt.Sprintf("%s (%s)", r.consumer, strings.Join(r.topics, ", ")))
		}
	})
	slices.Sort(out)
	return strings.Join(out, ", ")
}
