package sql_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

func TestPublishReceiveAck(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 500)
	d, err := tr.Depth(t.Context(), topicName, groupName)
	require.NoError(t, err)
	require.EqualValues(t, 500, d.Ready)
	require.WithinDuration(t, time.Now(), d.Oldest, time.Minute)

	ds := receive(t, c, 500)
	require.Len(t, ids(ds), 500)
	quiet(t, c, 50*time.Millisecond)
	settle(t, c, transport.Ack, ds[:499]...)
	require.Equal(t, 1, b.count("leat_deliveries"))
	require.Equal(t, 1, b.count("leat_messages"))
	settle(t, c, transport.Ack, ds[499])
	settle(t, c, transport.Ack, ds[499]) // the same batch again is fine
	require.Zero(t, b.count("leat_messages"))
	d, err = tr.Depth(t.Context(), topicName, groupName)
	require.NoError(t, err)
	require.Equal(t, transport.Depth{}, d)
	quiet(t, c, 50*time.Millisecond)
}

// A1: nothing lost, nothing twice, whoever publishes; singles share transactions.
func TestManyPublishers(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	const publishers, each = 64, 40
	var wg sync.WaitGroup
	for g := range publishers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", g, i)
				if err := p.Publish(t.Context(), topicName, msg(id, id, "")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < publishers*each {
		ds := receive(t, c, 1)
		more, err := c.Receive(t.Context(), 1000, 1<<20)
		require.NoError(t, err)
		ds = append(ds, more...)
		for _, d := range ds {
			seen[d.ID]++
			require.Equal(t, 1, seen[d.ID], d.ID)
		}
		settle(t, c, transport.Ack, ds...)
		if len(seen) >= publishers*each-1 {
			break
		}
	}
	wg.Wait()
	if len(seen) < publishers*each {
		settle(t, c, transport.Ack, receive(t, c, 1)...)
	}
	require.Zero(t, b.count("leat_messages"))
}

func TestFidelity(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := []message.Payload{nil, {}, {0}, all, bytes.Repeat([]byte("x"), 64<<10)}
	headers := []message.Metadata{
		nil,
		{"a": "", "": "b", "ключ": "значение", "q\"\\": "\x00\n\u2028"},
		{"bytes": string(all), string(all): "v"},
		{transport.KeyHeader: "k", "x": "y"},
		{transport.KeyHeader: string(all)},
		{transport.KeyHeader: ""},
	}
	want := map[string]*message.Message{}
	for i, pl := range payloads {
		for j, h := range headers {
			for _, id := range []string{fmt.Sprintf("id-%d-%d", i, j), fmt.Sprintf("\x00\xff%d-%d", i, j)} {
				m := &message.Message{UUID: id, Payload: pl, Metadata: h}
				want[id] = m
				require.NoError(t, p.Publish(t.Context(), topicName, m))
			}
		}
	}
	for _, d := range receive(t, c, len(want)) {
		m := want[d.ID]
		require.NotNil(t, m, "%q", d.ID)
		require.Equal(t, m.Payload == nil, d.Payload == nil)
		require.Equal(t, string(m.Payload), string(d.Payload))
		require.Len(t, d.Headers, len(m.Metadata))
		for k, v := range m.Metadata {
			require.Equal(t, v, d.Headers.Get(k), "%q", k)
		}
		require.Equal(t, m.Metadata[transport.KeyHeader], d.Key)
	}
}

func TestGroupsEachGetAll(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	p := produce(t, tr)
	publish(t, p, "early", 10)
	group := func(name string, start transport.Start) transport.Consumer {
		return consume(t, tr, func(c *transport.ConsumerConfig) { c.Group, c.Start = name, start })
	}
	first, late := group("first", transport.StartEarliest), group("late", transport.StartLatest)
	publish(t, p, "next", 5)
	ds := receive(t, first, 15)
	require.Len(t, ids(ds), 15)
	settle(t, first, transport.Ack, ds...)
	require.Equal(t, 5, b.count("leat_messages"), "those the late group waits for")
	ds = receive(t, late, 5)
	for id := range ids(ds) {
		require.True(t, strings.HasPrefix(id, "next"), id)
	}
	settle(t, late, transport.Ack, ds...)
	require.Zero(t, b.count("leat_deliveries"))
	again := group("first", transport.StartEarliest)
	quiet(t, again, 50*time.Millisecond)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	for i := range 10 {
		m := msg(fmt.Sprint(i), "same", strings.Repeat("x", 1000))
		require.NoError(t, p.Publish(t.Context(), topicName, m))
	}
	ds, err := c.Receive(t.Context(), 3, 1<<20)
	require.NoError(t, err)
	require.Len(t, ds, 3)
	ds, err = c.Receive(t.Context(), 100, 2500)
	require.NoError(t, err)
	require.Len(t, ds, 2)
	_, err = c.Receive(t.Context(), 100, 500)
	var need transport.NeedBytes
	require.ErrorAs(t, err, &need)
	require.Equal(t, ds[0].Size(), int64(need))
	ds, err = c.Receive(t.Context(), 100, int64(need))
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.Equal(t, "5", ds[0].ID)
	settle(t, c, transport.Release, ds...)
	_, err = c.Receive(t.Context(), 100, 500)
	require.ErrorAs(t, err, &need, "a message given back is as large as before")
	require.Len(t, receive(t, c, 5), 5)
}

func TestKeyOrderAndPause(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	for i := range 200 {
		require.NoError(t, p.Publish(t.Context(), topicName, msg(fmt.Sprint(i), fmt.Sprint("key", i%7), "")))
	}
	last := map[string]int64{}
	ds := receive(t, c, 100)
	paused := ds[0].Assignment
	c.Pause(paused)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for {
		more, err := c.Receive(ctx, 10, 1<<20)
		if err != nil {
			break
		}
		for _, d := range more {
			require.NotSame(t, paused, d.Assignment)
		}
		ds = append(ds, more...)
	}
	c.Resume(paused)
	ds = append(ds, receive(t, c, 200-len(ds))...)
	for _, d := range ds {
		require.Greater(t, d.Offset, last[d.Key])
		last[d.Key] = d.Offset
	}
	require.Len(t, last, 7)
}
