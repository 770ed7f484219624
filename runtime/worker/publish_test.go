package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	headers := message.Metadata{"from": "flag", transport.KeyHeader: "k"}
	for text, want := range map[string]*message.Message{
		`{"id":"1","payload":"text"}`:                  {UUID: "1", Payload: []byte("text"), Metadata: headers},
		`{"id":"1","payload":""}`:                      {UUID: "1", Payload: []byte{}, Metadata: headers},
		`{"id":"1","payload":"a\nb"}`:                  {UUID: "1", Payload: []byte("a\nb"), Metadata: headers},
		`{"id":"1","payload": {"b": 1.50, "a": [ ]} }`: {UUID: "1", Payload: []byte(`{"b": 1.50, "a": [ ]}`), Metadata: headers},
		`{"id":"1","payload":null}`:                    {UUID: "1", Payload: []byte("null"), Metadata: headers},
		`{"id":"1","key":"x","headers":{"from":"line"},"payload":1}` + "\r": {
			UUID: "1", Payload: []byte("1"), Metadata: message.Metadata{"from": "line", transport.KeyHeader: "x"},
		},
	} {
		m, err := parseLine([]byte(text), headers)
		require.NoError(t, err, text)
		require.Equal(t, want.UUID, m.UUID, text)
		require.Equal(t, want.Payload, m.Payload, text)
		require.Equal(t, want.Metadata, m.Metadata, text)
	}
	for text, want := range map[string]string{
		`[1]`:                             "is not a JSON object",
		`nonsense`:                        "is not a JSON object",
		`{"payload":1}{}`:                 "more than one",
		`{"payload":1} x`:                 "more than one",
		`{"payload":1,"header":{}}`:       `unknown field "header"`,
		`{"payload":1,"headers":{"a":1}}`: `"headers" is a number`,
		`{"payload":1,"id":{}}`:           `"id" is a object, and has to be a string`,
		`{"id":"1"}`:                      `no "payload"`,
		"{\"payload\":\"\xff\"}":          "UTF-8",
	} {
		_, err := parseLine([]byte(text), nil)
		require.ErrorContains(t, err, want, text)
	}
	m, err := parseLine([]byte(`{"payload":1}`), nil)
	require.NoError(t, err)
	require.NotEmpty(t, m.UUID)
}

func TestPacer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pacer{interval: 10 * time.Millisecond}
		began := time.Now()
		for range 50 {
			n, err := p.wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			p.sent(1)
		}
		require.Equal(t, 490*time.Millisecond, time.Since(began))

		// What a slow batch is behind may be made up for, a pause may not.
		<-time.After(105 * time.Millisecond)
		n, err := p.wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10, n)
		p.sent(n)
		<-time.After(time.Hour)
		n, err = p.wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		p.sent(1)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = p.wait(ctx)
		require.Error(t, err)
	})
}

// failing publishes all but messages whose id says "bad".
type failing struct {
	transport.Producer

	batches [][]string
}

func (f *failing) Publish(_ context.Context, topic string, msgs ...*message.Message) error {
	var ids []string
	e := &transport.PublishError{Topic: topic}
	for i, m := range msgs {
		ids = append(ids, m.UUID)
		if m.UUID == "bad" {
			e.Failed = append(e.Failed, transport.PublishFailure{Index: i, Err: errors.New("too large"), Permanent: true})
		}
	}
	f.batches = append(f.batches, ids)
	if len(e.Failed) > 0 {
		return e
	}
	return nil
}

func input(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, `{"id":%q,"payload":1}`+"\n", id)
	}
	return b.String()
}

func TestSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := readLines(strings.NewReader(input("1", "2", "3")), nil)
		synctest.Wait()
		p := &failing{}
		var ids strings.Builder
		s := sender{producer: p, topic: "t", ids: &ids}
		require.NoError(t, s.send(t.Context(), lines))
		require.Equal(t, [][]string{{"1", "2", "3"}}, p.batches, "what is there goes out together")
		require.Equal(t, "1\n2\n3\n", ids.String())

		lines = readLines(strings.NewReader(input("1", "bad", "3")), nil)
		synctest.Wait()
		s = sender{producer: &failing{}, topic: "t"}
		require.ErrorContains(t, s.send(t.Context(), lines), "too large; published 2")

		lines = readLines(strings.NewReader(input("1", "2", "3", "4")), nil)
		synctest.Wait()
		p = &failing{}
		s = sender{producer: p, topic: "t", pace: pacer{interval: time.Second}}
		began := time.Now()
		require.NoError(t, s.send(t.Context(), lines))
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}, {"4"}}, p.batches)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s = sender{producer: &failing{}, topic: "t"}
		require.ErrorContains(t, s.send(ctx, make(chan line)), "interrupted; published 0")
	})
}

func TestRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"100/s": 10 * time.Millisecond, "30/m": 2 * time.Second, "0.5/s": 2 * time.Second, "10/h": 6 * time.Minute} {
		var r rate
		require.NoError(t, r.UnmarshalText([]byte(text)))
		require.Equal(t, want, time.Duration(r), text)
	}
	for _, text := range []string{"", "100", "/s", "x/s", "0/s", "-1/s", "NaN/s", "Inf/s", "5/d", "1e99/s"} {
		require.Error(t, new(rate).UnmarshalText([]byte(text)), text)
	}
}
