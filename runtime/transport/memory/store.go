package memory

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// store is the messages of a partition. They stand one after the other in
// blocks, and records without pointers tell where: of a million messages the
// garbage collector sees the blocks alone.
type store struct {
	base    int64    // offset of records[0]
	records []record // one for each message
	blocks  []*block
	gone    int // blocks before blocks[0]
}

// record is where a message stands, and what Receive looks at first.
type record struct {
	block    int
	text     int // where it begins
	headers  int
	body     int   // where it begins; which of the large ones, where it is larger than small
	length   int   // of the body; -1 is nil
	size     int64 // as [transport.Delivery.Size] has it
	enqueued int64 // Unix, ns
}

// block holds messages up to blockSize. It only grows: what deliveries see of
// it never changes. Bodies that are larger than small are by themselves, so
// that nothing else keeps them alive.
type block struct {
	text   strings.Builder // ids, and names and values of headers, each after its length
	bodies []byte
	large  [][]byte
}

const blockSize = 32 << 10

// end is the offset of the next message.
func (s *store) end() int64 { return s.base + int64(len(s.records)) }

// append takes a copy of a message in.
func (s *store) append(id string, m *message.Message, now time.Time) {
	b := s.open()
	hs := transport.HeadersOf(m.Metadata)
	r := record{
		block: s.gone + len(s.blocks) - 1, text: b.text.Len(), headers: len(hs),
		body: len(b.bodies), length: len(m.Payload), size: int64(len(m.Payload) + len(id)), enqueued: now.UnixNano(),
	}
	b.put(id)
	for _, h := range hs {
		b.put(h.Name)
		b.put(h.Value)
		r.size += int64(len(h.Name) + len(h.Value))
	}
	switch {
	case m.Payload == nil:
		r.length = -1
	case r.length > small:
		r.body = len(b.large)
		b.large = append(b.large, append(make([]byte, 0, r.length), m.Payload...))
	default:
		b.bodies = append(b.bodies, m.Payload...)
	}
	s.records = append(s.records, r)
}

// open is the block that the next message goes to.
func (s *store) open() *block {
	if n := len(s.blocks); n > 0 {
		if b := s.blocks[n-1]; b.text.Len()+len(b.bodies) < blockSize {
			return b
		}
	}
	b := new(block)
	s.blocks = append(s.blocks, b)
	return b
}

// at is the record of an offset that is there.
func (s *store) at(offset int64) *record { return &s.records[offset-s.base] }

// id is the id of a record's message; rest is the text of its headers.
func (s *store) id(r *record) (id, rest string) {
	return cut(s.blocks[r.block-s.gone].text.String()[r.text:])
}

// payload is a record's payload, which nobody may change.
func (s *store) payload(r *record) []byte {
	b := s.blocks[r.block-s.gone]
	switch {
	case r.length < 0:
		return nil
	case r.length == 0:
		return []byte{}
	case r.length > small:
		return b.large[r.body]
	default:
		return b.bodies[r.body : r.body+r.length : r.body+r.length]
	}
}

// headers reads into hs, as many as it is long, the text that id has left.
func headers(hs transport.Headers, text string) {
	for i := range hs {
		hs[i].Name, text = cut(text)
		hs[i].Value, text = cut(text)
	}
}

// drop lets go of the first n messages.
func (s *store) drop(n int) {
	for _, r := range s.records[:n] {
		if r.length > small {
			s.blocks[r.block-s.gone].large[r.body] = nil
		}
	}
	s.records = s.records[n:]
	s.base += int64(n)
	keep := s.gone + len(s.blocks)
	if len(s.records) > 0 {
		keep = s.records[0].block
	}
	n = keep - s.gone
	clear(s.blocks[:n])
	s.blocks, s.gone = s.blocks[n:], keep
}

// put writes a string and its length before it.
func (b *block) put(s string) {
	var n [binary.MaxVarintLen64]byte
	b.text.Write(binary.AppendUvarint(n[:0], uint64(len(s))))
	b.text.WriteString(s)
}

// cut reads what put has written.
func cut(text string) (s, rest string) {
	n, i := 0, 0
	for shift := 0; ; shift += 7 {
		c := text[i]
		i++
		n |= int(c&0x7f) << shift
		if c < 0x80 {
			return text[i : i+n], text[i+n:]
		}
	}
}
