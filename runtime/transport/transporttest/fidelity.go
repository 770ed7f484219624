package transporttest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// samples are messages of every shape, by what is special about them.
func samples() map[string]*message.Message {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprintf("header-%03d", i)] = strings.Repeat("v", i)
	}
	kinds := map[string]string{
		"ascii": "plain", "empty": "", "unicode": "Größe 漢字 🙂", "schlüssel-漢": "unicode name",
		"binary": "\x00\x01\xff\xfe", "quotes": `"'\{}[];,=%s`, "lines": "a\r\nb\tc", "spaces": "  padded  ",
	}
	shapes := map[string]struct {
		payload  []byte
		key      string
		metadata map[string]string
	}{
		"nil payload":    {payload: nil},
		"empty payload":  {payload: []byte{}},
		"one byte":       {payload: []byte{0}},
		"every byte":     {payload: every},
		"64 KiB":         {payload: bytes.Repeat(every, 256)},
		"many headers":   {payload: []byte("x"), metadata: many},
		"header values":  {payload: []byte("x"), key: "k", metadata: kinds},
		"unicode key":    {payload: []byte("x"), key: "ключ 鍵"},
		"binary key":     {payload: []byte("x"), key: "\x00\xff key"},
		"id ü with / \"": {payload: []byte("x")},
	}
	out := make(map[string]*message.Message, len(shapes))
	for name, shape := range shapes {
		m := message.NewMessage(name, shape.payload)
		maps.Copy(m.Metadata, shape.metadata)
		if shape.key != "" {
			m.Metadata.Set(transport.KeyHeader, shape.key)
		}
		out[name] = m
	}
	return out
}

// fidelity: id, payload, headers and key arrive as they were published, the
// second time as well, whatever the publisher does with its message afterwards.
func fidelity(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	all := samples()
	began := time.Now()
	for _, sample := range all {
		published := sample.Copy()
		published.Payload = slices.Clone(sample.Payload) // Copy makes nil of what is empty, or the other way round
		r.publish(s.pub, s.topic, published)
		for i := range published.Payload {
			published.Payload[i] ^= 0x55
		}
		clear(published.Metadata)
	}
	same := func(ds []*transport.Delivery) {
		require.Len(r, ds, len(all))
		for _, d := range ds {
			want := all[d.ID]
			require.NotNil(r, want, "a message with the id %q", d.ID)
			require.Equal(r, want.Payload == nil, d.Payload == nil, "%s: nil and empty are kept apart", d.ID)
			require.True(r, bytes.Equal(want.Payload, d.Payload), "payload of %s", d.ID)
			require.Equal(r, map[string]string(want.Metadata), d.Headers.Map(), "headers of %s", d.ID)
			require.Len(r, d.Headers, len(want.Metadata), "headers of %s", d.ID)
			require.Equal(r, want.Metadata.Get(transport.KeyHeader), d.Key, "key of %s", d.ID)
			require.Equal(r, s.topic, d.Topic)
			if !d.Enqueued.IsZero() {
				require.WithinRange(r, d.Enqueued, began.Add(-time.Minute), time.Now().Add(time.Minute), "enqueue time of %s", d.ID)
			}
		}
	}
	same(m.receive(len(all)))
	m.reopen()
	again := m.receive(len(all))
	same(again)
	m.settle(transport.Ack, again...)
	m.quiet()
}

// foreign: what others have put into the topic is delivered, has an id that
// stays the same, and stops nobody.
func foreign(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	good := s.send("before", "k", 1)
	n := r.broker.Foreign(r.TB, s.topic, s.group)
	good = append(good, s.spread("behind", 100)...)
	first := m.receive(n + len(good))
	require.Subset(r, ids(first), good)
	byID := map[string]*transport.Delivery{}
	for _, d := range first {
		if d.ID != "" {
			require.Nil(r, byID[d.ID], "two messages have the id %q", d.ID)
			byID[d.ID] = d
		}
		require.False(r, d.ID == "" && r.caps.StableCoordinates, "a message without an id has none of its coordinates: %s", d.Coordinates())
	}
	m.reopen()
	again := m.receive(len(first))
	for _, d := range again {
		if d.ID == "" {
			continue
		}
		before := byID[d.ID]
		require.NotNil(r, before, "id %q is new at a redelivery", d.ID)
		require.Equal(r, before.Payload, d.Payload, d.ID)
		require.Equal(r, before.Headers, d.Headers, d.ID)
	}
	m.settle(transport.Ack, again...)
	m.quiet()
}

// redelivered: a message that has never been handed out is not marked, and
// one that has is, where that is how the engine knows it.
func redelivered(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.send("m", "k", 5)
	marked := func(ds []*transport.Delivery, want bool) {
		for _, d := range ds {
			require.Equal(r, want, d.Redelivered, "Redelivered of %s", d.ID)
		}
	}
	ds := m.receive(5)
	marked(ds, false)
	m.settle(transport.Ack, ds[:2]...)
	m.reopen()
	ds = m.receive(3)
	if !r.caps.StableCoordinates {
		marked(ds, true)
	}
	m.settle(transport.Ack, ds...)
	s.send("n", "k", 3)
	marked(m.receive(3), false)
}

// coordinates: they name the same message in every delivery, where they are
// declared stable; else the session tells connections apart.
func coordinates(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	s.spread("m", 10)
	r.publish(s.pub, s.topic, message.NewMessage("", []byte("no id")))
	first := m.receive(11)
	m.reopen()
	again := m.receive(11)
	if !r.caps.StableCoordinates {
		for i := range first {
			require.Equal(r, uint64(1), first[i].Session)
			require.Equal(r, uint64(2), again[i].Session)
		}
		return
	}
	at := map[string]string{}
	for _, d := range first {
		require.NotEmpty(r, d.ID)
		at[d.Coordinates()] = d.ID
	}
	require.Len(r, at, 11, "coordinates are of one message each")
	for _, d := range again {
		require.Equal(r, at[d.Coordinates()], d.ID, "what is at %s", d.Coordinates())
		require.NotSame(r, first[0].Assignment, d.Assignment)
	}
}
