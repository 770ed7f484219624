package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

func TestDeadMessageKeepsWhatWasReceived(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	headers := map[string]string{"": "", "bytes": string(every), "ключ": "значение", transport.KeyHeader: "k", "reason": "mine"}
	for name, payload := range map[string][]byte{"nil": nil, "empty": {}, "every byte": every} {
		before := maps.Clone(headers)
		m := transport.DeadMessage("id", payload, headers, transport.DeadInfo{Err: errors.New("x")})
		require.Equal(t, before, headers, "the original is not touched")
		require.Equal(t, "id", m.UUID, name)
		require.Equal(t, payload == nil, m.Payload == nil, name)
		require.True(t, bytes.Equal(payload, m.Payload), name)
		for k, v := range headers {
			require.Equal(t, v, m.Metadata[k], "%s: header %q", name, k)
		}
	}
}

func TestDeadMessageProvenance(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	m := transport.DeadMessage("id", nil, nil, transport.DeadInfo{
		Reason: transport.ReasonExhausted, Err: &transport.Exhausted{Attempts: 5, Err: &transport.Panicked{Value: "boom", Stack: []byte("main.go:1\n")}},
		Topic: "t", Coordinates: "t/1/2", Group: "g", Consumer: "c", Instance: "i", Attempts: 5,
		FirstFailure: at, LastFailure: at.Add(time.Hour), Enqueued: at.Add(-time.Hour),
	})
	require.Equal(t, map[string]string{
		"leat_dead_version":       "1",
		"leat_dead_reason":        "attempts used up",
		"leat_dead_error":         "given up after 5 attempts: panic: boom",
		"leat_dead_class":         "panic",
		"leat_dead_stack":         "main.go:1\n",
		"leat_dead_topic":         "t",
		"leat_dead_coordinates":   "t/1/2",
		"leat_dead_group":         "g",
		"leat_dead_consumer":      "c",
		"leat_dead_instance":      "i",
		"leat_dead_attempts":      "5",
		"leat_dead_first_failure": "2026-01-02T02:04:05.000000006Z",
		"leat_dead_last_failure":  "2026-01-02T03:04:05.000000006Z",
		"leat_dead_enqueued":      "2026-01-02T01:04:05.000000006Z",
		"reason_poisoned":         "given up after 5 attempts: panic: boom",
		"topic_poisoned":          "t",
		"handler_poisoned":        "c",
		"subscriber_poisoned":     "g",
	}, map[string]string(m.Metadata))
}

func TestDeadMessageOfOneThatDiedBefore(t *testing.T) {
	t.Parallel()
	first := transport.DeadMessage("id", nil, map[string]string{"mine": "1"}, transport.DeadInfo{
		Err: &transport.Panicked{Value: "x", Stack: []byte("stack")}, Instance: "old", Enqueued: time.Unix(1, 0),
	})
	again := transport.DeadMessage("id", nil, first.Metadata, transport.DeadInfo{Err: errors.New("y")})
	require.Equal(t, transport.DeadMessage("id", nil, map[string]string{"mine": "1"}, transport.DeadInfo{Err: errors.New("y")}), again)
}

func TestDeadMessageIsCapped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 10_000)
	m := transport.DeadMessage("id", nil, nil, transport.DeadInfo{Err: &transport.Panicked{Value: long, Stack: []byte(long)}})
	for header, most := range map[string]int{transport.DeadErrorHeader: 1 << 10, transport.DeadStackHeader: 4 << 10, "reason_poisoned": 1 << 10} {
		require.LessOrEqual(t, len(m.Metadata[header]), most, header)
		require.Greater(t, len(m.Metadata[header]), most-4, header)
		require.NotContains(t, m.Metadata[header], "\uFFFD", header)
	}
}

func TestCapText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\tb\nc", transport.CapText("a\tb\nc", 100))
	require.Equal(t, "ab", transport.CapText("a\x00\r\x1b\u0085b", 100))
	require.Equal(t, "a\uFFFDb", transport.CapText("a\xffb", 100))
	require.Equal(t, "éé", transport.CapText("éé", 4))
	require.Equal(t, "é…", transport.CapText("ééé", 5))
	require.Equal(t, "é…", transport.CapText("éééééé", 6))

	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes")) + rapid.String().Draw(t, "runes")
		n := rapid.IntRange(3, 100).Draw(t, "n")
		got := transport.CapText(text, n)
		require.LessOrEqual(t, len(got), n)
		require.True(t, utf8.ValidString(got))
	})
}

func TestClass(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"":                   nil,
		"errors.errorString": fmt.Errorf("a: %w", errors.New("b")),
		"transport_test.permanentError": fmt.Errorf("a: %w", &transport.Exhausted{
			Err: fmt.Errorf("b: %w", permanentError(true)),
		}),
		"panic":               &transport.Exhausted{Err: fmt.Errorf("x: %w", &transport.Panicked{Value: "y"})},
		"transport.NeedBytes": transport.NeedBytes(1),
	} {
		require.Equal(t, want, transport.Class(err))
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	plain := errors.New("x")
	require.NoError(t, transport.Refuse(nil))
	require.False(t, transport.Refused(plain))
	require.True(t, transport.Refused(fmt.Errorf("a: %w", transport.Refuse(plain))))
	require.ErrorIs(t, transport.Refuse(plain), plain)
}

func TestPublishError(t *testing.T) {
	t.Parallel()
	plain := errors.New("x")
	err := &transport.PublishError{Topic: "t", Failed: []transport.PublishFailure{{Index: 1, Err: errors.New("first")}, {Index: 3, Err: plain}}}
	require.ErrorIs(t, err, plain)
	require.EqualError(t, err, `publish to "t": 2 failed, the first with: first`)
	require.EqualError(t, &transport.PublishError{Topic: "t"}, `publish to "t"`)
}
