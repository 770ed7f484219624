package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// ahead is what a commit says of messages above its offset: all from offset up
// to top are done, but for those that are open. The others of a group that is
// shared with another client ignore it and run such messages again.
type ahead struct {
	topic  kadm.TopicID // the topic it is about: one made again repeats offsets
	epoch  int32        // the leader epoch of the highest one that is done; -1: unknown
	offset int64        // that was committed with it: another one was set by hand
	top    int64        // one above the highest that is done
	open   []int64      // not done, ascending, from offset up to top
}

// aheadPrefix begins the text, and is the version of the format.
const aheadPrefix = "leat1:"

// encode writes it within limit bytes; what does not fit is left out from the
// top, so that it is handled again after a crash. Empty if there is nothing to say.
func (a *ahead) encode(limit int) string {
	room := (limit - len(aheadPrefix)) / 4 * 3 // of base64
	head := append(make([]byte, 0, 64), a.topic[:]...)
	head = binary.AppendVarint(head, int64(a.epoch))
	head = binary.AppendVarint(head, a.offset)
	room -= len(head) + binary.MaxVarintLen64

	// Runs of open ones and of done ones take turns, beginning with open ones
	// at the committed offset itself; each is written as its length.
	body, top := make([]byte, 0, 64), a.offset
	for i := 0; i < len(a.open); {
		j := i + 1
		for j < len(a.open) && a.open[j] == a.open[j-1]+1 {
			j++
		}
		after := a.top
		if j < len(a.open) {
			after = a.open[j]
		}
		n := len(body)
		body = binary.AppendUvarint(body, uint64(a.open[j-1]+1-top))   //nolint:gosec // ascending
		body = binary.AppendUvarint(body, uint64(after-a.open[j-1]-1)) //nolint:gosec // ascending
		if len(body) > room {
			body = body[:n]
			break
		}
		top, i = after, j
	}
	if len(body) == 0 {
		return ""
	}
	return aheadPrefix + base64.RawStdEncoding.EncodeToString(append(head, body...))
}

// decodeAhead reads it; nil where there is none, or one of another version.
func decodeAhead(text string) *ahead {
	text, ok := strings.CutPrefix(text, aheadPrefix)
	if !ok {
		return nil
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < len(kadm.TopicID{}) {
		return nil
	}
	a := &ahead{topic: kadm.TopicID(b)}
	b = b[len(a.topic):]
	epoch, n := binary.Varint(b)
	if n <= 0 {
		return nil
	}
	b = b[n:]
	a.epoch = int32(epoch) //nolint:gosec // it was one
	if a.offset, n = binary.Varint(b); n <= 0 || a.offset < 0 || a.offset > maxTop {
		return nil
	}
	b, a.top = b[n:], a.offset
	for len(b) > 0 {
		open, n := binary.Uvarint(b)
		if n <= 0 || open > maxRun || len(a.open)+int(open) > maxOpen {
			return nil
		}
		done, m := binary.Uvarint(b[n:])
		if m <= 0 || done > maxRun {
			return nil
		}
		b = b[n+m:]
		for range open {
			a.open = append(a.open, a.top)
			a.top++
		}
		if a.top += int64(done); a.top > maxTop {
			return nil
		}
	}
	return a
}

// Bounds on what is read, so that a text by hand cannot fill the memory.
const (
	maxRun  = 1 << 48
	maxOpen = 1 << 20
	maxTop  = 1 << 62
)

// fits tells whether it is about this topic and this position.
func (a *ahead) fits(topic kadm.TopicID, offset int64) bool {
	return a != nil && a.topic == topic && a.offset == offset
}

// has tells whether an offset is done.
func (a *ahead) has(offset int64) bool {
	if a == nil || offset < a.offset || offset >= a.top {
		return false
	}
	_, open := slices.BinarySearch(a.open, offset)
	return !open
}

// done counts the offsets that are, from one up to another.
func (a *ahead) done(from, to int64) int64 {
	from, to = max(from, a.offset), min(to, a.top)
	if from >= to {
		return 0
	}
	i, _ := slices.BinarySearch(a.open, from)
	j, _ := slices.BinarySearch(a.open, to)
	return to - from - int64(j-i)
}
