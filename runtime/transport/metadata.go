package transport

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata that Leat adds. All begins with leat_ and may be absent: an older
// or newer Leat reads what it knows.
const (
	KeyHeader     = "leat_key"     // the message key
	DerivedHeader = "leat_derived" // "1": the id was derived by Leat from the message's source

	deadPrefix         = "leat_dead_"
	DeadVersionHeader  = "leat_dead_version" // "1"
	DeadReasonHeader   = "leat_dead_reason"
	DeadErrorHeader    = "leat_dead_error" // text of the error, at most 1 KiB
	DeadClassHeader    = "leat_dead_class"
	DeadStackHeader    = "leat_dead_stack" // of a panic, at most 4 KiB
	DeadTopicHeader    = "leat_dead_topic" // where it came from
	DeadCoordsHeader   = "leat_dead_coordinates"
	DeadGroupHeader    = "leat_dead_group"
	DeadConsumerHeader = "leat_dead_consumer"
	DeadAttemptsHeader = "leat_dead_attempts"
	DeadFirstHeader    = "leat_dead_first_failure" // RFC 3339, UTC
	DeadLastHeader     = "leat_dead_last_failure"
	DeadEnqueuedHeader = "leat_dead_enqueued"
	DeadInstanceHeader = "leat_dead_instance"
)

// Bounds on what a dead letter says in text, so that a copy is never too large
// for a broker that took the original.
const (
	maxDeadError = 1 << 10
	maxDeadStack = 4 << 10
)

// DeadInfo is the provenance of a dead letter.
type DeadInfo struct {
	Reason       string
	Err          error
	Topic        string
	Coordinates  string
	Group        string
	Consumer     string
	Instance     string
	Attempts     int
	FirstFailure time.Time
	LastFailure  time.Time
	Enqueued     time.Time
}

// DeadMessage makes the copy that goes to a dead letter: id, payload and
// headers as they were received, with what i says in place of what an earlier
// death has left. It also has the four keys that Watermill's PoisonQueue writes.
func DeadMessage(id string, payload []byte, headers map[string]string, i DeadInfo) *message.Message {
	md := make(message.Metadata, len(headers)+20)
	for k, v := range headers {
		if !strings.HasPrefix(k, deadPrefix) { // of an earlier death, before a replay
			md[k] = v
		}
	}
	text := ErrorText(i.Err, maxDeadError)
	set := func(k, v string) {
		if v != "" {
			md[k] = v
		}
	}
	at := func(k string, t time.Time) {
		if !t.IsZero() {
			md[k] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	md[DeadVersionHeader] = "1"
	set(DeadReasonHeader, i.Reason)
	set(DeadErrorHeader, text)
	set(DeadClassHeader, Class(i.Err))
	set(DeadStackHeader, stackOf(i.Err))
	set(DeadTopicHeader, i.Topic)
	set(DeadCoordsHeader, i.Coordinates)
	set(DeadGroupHeader, i.Group)
	set(DeadConsumerHeader, i.Consumer)
	set(DeadInstanceHeader, i.Instance)
	md[DeadAttemptsHeader] = strconv.Itoa(i.Attempts)
	at(DeadFirstHeader, i.FirstFailure)
	at(DeadLastHeader, i.LastFailure)
	at(DeadEnqueuedHeader, i.Enqueued)
	md["reason_poisoned"] = text
	md["topic_poisoned"] = i.Topic
	md["handler_poisoned"] = i.Consumer
	md["subscriber_poisoned"] = i.Group
	return &message.Message{UUID: id, Payload: payload, Metadata: md}
}

// CapText cuts s to at most n bytes of whole, valid UTF-8 without control
// characters other than newline and tab.
func CapText(s string, n int) string {
	const ellipsis = "…"
	cut := len(s) > 2*n // so that a huge text is not cleaned for nothing
	if cut {
		s = s[:2*n]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r // bytes that are no rune arrive as U+FFFD
	}, s)
	if !cut && len(s) <= n {
		return s
	}
	end := min(len(s), n-len(ellipsis))
	for end < len(s) && end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}
