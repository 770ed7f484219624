package runtimetest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// ExpectHandled lets time go on, through retries if there are any, until each
// of the messages has come to its end, and fails unless that is handled, its
// outputs confirmed. Without messages it is about all that consumers get,
// messages of handlers among them.
func (k *Kit) ExpectHandled(msgs ...*Sent) {
	k.Helper()
	k.expect(transport.Handled, msgs)
}

// ExpectDead is ExpectHandled for messages that fail for good: their copy is
// confirmed in the dead letter, or they were dropped.
func (k *Kit) ExpectDead(msgs ...*Sent) {
	k.Helper()
	k.expect(transport.Dead, msgs)
}

// ExpectSkipped is ExpectHandled for messages that the handler skips.
func (k *Kit) ExpectSkipped(msgs ...*Sent) {
	k.Helper()
	k.expect(transport.Skipped, msgs)
}

// ExpectDuplicate is ExpectHandled for messages that dedup leaves out.
func (k *Kit) ExpectDuplicate(msgs ...*Sent) {
	k.Helper()
	k.expect(transport.Duplicate, msgs)
}

func (k *Kit) expect(want transport.Outcome, msgs []*Sent) {
	k.Helper()
	var unlike []*story
	answered := k.await(func() bool {
		var open, other bool
		unlike = nil
		all := k.ledger.of(k.only, msgs)
		k.ledger.read(func() {
			for _, s := range all {
				final := s.final()
				open = open || final == 0
				other = other || final != 0 && final != want
				if final != want {
					unlike = append(unlike, s)
				}
			}
		})
		if len(msgs) == 0 { // there may be more to come
			open = open || !k.idle()
		}
		return other || !open
	})
	switch {
	case len(k.ledger.of(k.only, msgs)) == 0:
		k.Fatalf("want %s, and no message was published", want)
	case !answered, len(unlike) > 0:
		k.fail(want.String(), unlike)
	}
}

// ExpectRetried lets time go on until the next attempt of a message has ended
// (next after the one of the last such call), and fails unless it is to be
// tried again. It returns how long the message waits, and does not wait that
// long; 0 where the broker is not told, as with ack: on_receive.
func (k *Kit) ExpectRetried(m *Sent) (wait time.Duration) {
	k.Helper()
	stories := k.ledger.of(k.only, []*Sent{m})
	next := func(s *story) *run {
		for _, r := range s.runs[s.asked:] {
			if r.outcome != transport.Waiting && r.outcome != transport.Interrupted {
				return r
			}
		}
		return nil
	}
	var unlike []*story
	answered := k.await(func() bool {
		var open bool
		unlike = nil
		k.ledger.read(func() {
			for _, s := range stories {
				r := next(s)
				open = open || r == nil || r.outcome == 0
				if r == nil || r.outcome != transport.Retried {
					unlike = append(unlike, s)
				}
			}
		})
		return !open
	})
	if !answered || len(unlike) > 0 {
		k.fail(transport.Retried.String(), unlike)
	}
	k.Advance(tellBroker)
	k.ledger.read(func() {
		for _, s := range stories {
			r := next(s)
			for s.asked < len(s.runs) && s.runs[s.asked] != r {
				s.asked++
			}
			s.asked++
			wait = max(wait, r.wait)
		}
	})
	return wait
}

// tellBroker is longer than the engine gathers what it tells a broker.
const tellBroker = 5 * time.Millisecond

// ExpectEmitted lets time go on until nothing runs, and fails unless want is all
// that the worker has published to the topic so far, in any order, since
// handlers run side by side. Values are compared as JSON. Without any, nothing
// may have been published.
func (k *Kit) ExpectEmitted(topic string, want ...any) {
	k.Helper()
	extra := bodies(k.emitted(topic))
	var missing []string
	for i, v := range want {
		m, err := encode(v)
		if err != nil {
			k.Fatalf("emitted to %q: value %d: %v", topic, i+1, err)
		}
		at := slices.IndexFunc(extra, func(body string) bool { return sameJSON(m.Payload, []byte(body)) })
		if at < 0 {
			missing = append(missing, string(m.Payload))
			continue
		}
		extra = slices.Delete(extra, at, at+1)
	}
	if len(missing)+len(extra) > 0 {
		k.Fatalf("emitted to %q:\n  missing: %s\n  not expected: %s%s",
			topic, listed(missing), listed(extra), k.timelineOf(k.ledger.of("", nil)))
	}
}

// Emitted is what the worker has published to a topic so far, decoded, once
// nothing runs any more. With *message.Message as T it is the messages themselves.
func Emitted[T any](k *Kit, topic string) []T {
	k.Helper()
	var out []T
	for i, m := range k.emitted(topic) {
		var v T
		if itself, ok := any(&v).(**message.Message); ok {
			*itself = m
		} else if err := json.Unmarshal(m.Payload, &v); err != nil {
			k.Fatalf("emitted to %q: message %d does not fit %v: %v", topic, i+1, reflect.TypeFor[T](), err)
		}
		out = append(out, v)
	}
	return out
}

func (k *Kit) emitted(topic string) (msgs []*message.Message) {
	k.Helper()
	k.settle()
	k.ledger.read(func() {
		for _, o := range k.ledger.outputs {
			if o.topic == topic {
				msgs = append(msgs, o.msg)
			}
		}
	})
	return msgs
}

// DeadLetter is the copy of a message that has failed for good.
type DeadLetter struct {
	ID       string
	Topic    string // where the message came from
	Consumer string
	Reason   string // one of the Reason constants of package transport
	Error    string
	Attempts int
	Message  *message.Message // the copy itself
}

// Dead is all dead letters so far, once nothing runs any more. What was dropped
// has left none.
func (k *Kit) Dead() (letters []DeadLetter) {
	k.Helper()
	k.settle()
	k.ledger.read(func() {
		for _, o := range k.ledger.outputs {
			md := o.msg.Metadata
			if !k.ledger.dead[o.topic] || k.only != "" && k.only != md[transport.DeadConsumerHeader] {
				continue
			}
			attempts, _ := strconv.Atoi(md[transport.DeadAttemptsHeader])
			letters = append(letters, DeadLetter{
				ID: o.msg.UUID, Topic: md[transport.DeadTopicHeader], Consumer: md[transport.DeadConsumerHeader],
				Reason: md[transport.DeadReasonHeader], Error: md[transport.DeadErrorHeader], Attempts: attempts, Message: o.msg,
			})
		}
	})
	return letters
}

func bodies(msgs []*message.Message) []string {
	out := make([]string, len(msgs))
	for i, m := range msgs {
		out[i] = string(m.Payload)
	}
	return out
}

// sameJSON compares values; what is not JSON is compared as text.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return string(a) == string(b)
	}
	return reflect.DeepEqual(x, y)
}

func listed(values []string) string {
	if len(values) == 0 {
		return "nothing"
	}
	short := make([]string, len(values))
	for i, v := range values {
		short[i] = transport.CapText(v, maxText)
	}
	return strings.Join(short, "\n    ")
}
