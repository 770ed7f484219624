package kafka

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// handed is one hand-over of a record.
type handed struct {
	transport.Delivery
	spell *spell
	size  int64
	lump  *lump // that the payload lies in; nil if it was copied
	done  bool  // settled; guarded by the consumer's mutex
}

// Deliveries of small records share allocations: one that stays unsettled keeps
// alive some kilobytes.
const (
	slab      = 32
	smallBody = 4 << 10
	arenaSize = 64 << 10
	textSize  = 4 << 10
)

// maker makes deliveries of records; it is used for one Receive.
type maker struct {
	left    int // records that may still come
	slots   []handed
	headers []transport.Header
	bytes   []byte
	text    *strings.Builder
}

func (m *maker) slot() *handed {
	if len(m.slots) == 0 {
		m.slots = make([]handed, max(1, min(slab, m.left)))
	}
	h := &m.slots[0]
	m.slots = m.slots[1:]
	m.left--
	return h
}

// body copies a payload out of the fetch it came with.
func (m *maker) body(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) == 0:
		return []byte{}
	case len(b) > smallBody:
		return slices.Clone(b)
	case len(b) > cap(m.bytes)-len(m.bytes):
		m.bytes = make([]byte, 0, min(arenaSize, max(len(b), (len(b)+64)*max(1, min(slab, m.left+1)))))
	}
	n := len(m.bytes)
	m.bytes = append(m.bytes, b...)
	return m.bytes[n:len(m.bytes):len(m.bytes)]
}

func (m *maker) list(n int) transport.Headers {
	if n == 0 {
		return nil
	}
	if n > cap(m.headers)-len(m.headers) {
		m.headers = make([]transport.Header, 0, n*max(1, min(slab, m.left+1)))
	}
	at := len(m.headers)
	m.headers = m.headers[:at+n]
	return transport.Headers(m.headers[at : at : at+n])
}

// words has room for n bytes of text; what is cut out of it stays.
func (m *maker) words(n int) *strings.Builder {
	if m.text == nil || n > m.text.Cap()-m.text.Len() {
		m.text = new(strings.Builder)
		m.text.Grow(n * max(1, min(slab, m.left+1, textSize/max(n, 1))))
	}
	return m.text
}

// make makes a delivery of a record in a lump.
func (m *maker) make(r *kgo.Record, s *spell, l *lump) *handed {
	h := m.slot()
	h.spell = s
	d := &h.Delivery
	if s.pins.bytes > s.pins.limit {
		d.Payload = m.body(r.Value)
	} else {
		d.Payload, h.lump = slices.Clip(r.Value), l
		l.open++
	}
	d.Topic, d.Partition, d.Offset, d.Enqueued, d.Assignment, d.Tag = s.topic, s.part, r.Offset, r.Timestamp, s.a, h
	id := -1
	size := len(r.Key)
	for i, rh := range r.Headers {
		size += len(rh.Value)
		if rh.Key == uuidHeader {
			id = i // the last one is it
		}
	}
	text := m.words(size)
	cut := func(b []byte) string {
		n := text.Len()
		text.Write(b)
		return text.String()[n:]
	}
	d.Key = cut(r.Key)
	raw := rich(r.Headers)
	n := len(r.Headers)
	if d.Key != "" {
		n++
	}
	if raw {
		n++
	}
	d.Headers = m.list(n)
	var ceID, ceSource string
	for i, rh := range r.Headers {
		v := cut(rh.Value)
		switch {
		case i == id:
			d.ID = v
			continue
		case rh.Key == eventID:
			ceID = v
		case rh.Key == eventSource:
			ceSource = v
		case rh.Key == transport.KeyHeader && d.Key != "":
			continue // the record's key is the key
		}
		d.Headers = append(d.Headers, transport.Header{Name: rh.Key, Value: v})
	}
	if raw {
		d.Headers = append(d.Headers, transport.Header{Name: rawHeader, Value: encodeRaw(r.Headers)})
	}
	if d.Key != "" {
		d.Headers = append(d.Headers, transport.Header{Name: transport.KeyHeader, Value: d.Key})
	}
	switch {
	case d.ID != "":
	case ceID != "":
		d.ID = ceSource + "#" + ceID
	default:
		d.ID = coordinates(s.id, s.topic, s.part, r.Offset)
	}
	h.size = d.Size()
	return h
}

// coordinates name a record that has no id; with the topic's own id, since a
// topic that is made again repeats its offsets.
func coordinates(id kadm.TopicID, topic string, part int32, offset int64) string {
	return topic + "/" + strconv.Itoa(int(part)) + "/" + strconv.FormatInt(offset, 10) + "@" + hex.EncodeToString(id[:])
}
