package middleware_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func TestDedupIDReused(t *testing.T) {
	t.Parallel()
	p := policy(t, transport.Backoff{})
	second := func(key string, metadata map[string]string, payload string) error {
		h := newDedup(t, middleware.DedupOptions{Key: key})((&effects{}).handle)
		first := transport.NewAttempt(delivery(t, "1", []byte(`{"id":7,"n":1}`), metadata), "c", "g", 1, time.Time{})
		_, err := h(first.Message())
		require.NoError(t, err)
		settle(t, first, transport.Handled)
		_, err = h(transport.NewAttempt(delivery(t, "1", []byte(payload), metadata), "c", "g", 1, time.Time{}).Message())
		return err
	}
	const same, other = `{"id":7,"n":1}`, `{"id":7,"n":2}`
	require.Equal(t, transport.Already, second("", nil, same))
	require.Equal(t, transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonIDReused, Spent: true}, p.Decide(second("", nil, other), 1))
	require.Equal(t, transport.Already, second("id", map[string]string{transport.DerivedHeader: "1"}, other), "an id of our own making")
	require.Equal(t, transport.Already, second("payload.id", nil, other), "the key says that it is the same")
	require.Equal(t, transport.Already, second("metadata.k", map[string]string{"k": "v"}, other))
}

func TestDedupScope(t *testing.T) {
	t.Parallel()
	store := middleware.NewMemoryDedup(0)
	run := func(scope, topic, group string) error {
		d := delivery(t, "1", nil, nil)
		d.Topic = topic
		a := transport.NewAttempt(d, "c", group, 1, time.Time{})
		_, err := newDedup(t, middleware.DedupOptions{Store: store, Scope: scope})((&effects{}).handle)(a.Message())
		if err == nil {
			settle(t, a, transport.Handled)
		}
		return err
	}
	for _, where := range [][2]string{{"a", "g"}, {"b", "g"}, {"a", "h"}, {"ag", ""}, {"", "ag"}} {
		require.NoError(t, run("", where[0], where[1]))
		require.Equal(t, transport.Already, run("", where[0], where[1]))
	}
	require.NoError(t, run("shared", "a", "g"))
	require.Equal(t, transport.Already, run("shared", "b", "h"))

	// One middleware that sees several topics.
	m := newDedup(t, middleware.DedupOptions{Store: store})
	for _, topic := range []string{"x", "y", "x", "y"} {
		d := delivery(t, "1", nil, nil)
		d.Topic = topic
		_, err := m((&effects{}).handle)(transport.NewAttempt(d, "c", "g", 1, time.Time{}).Message())
		if d.Topic == topic && err != nil {
			isHeld(t, err, time.Second)
		}
	}
}

func TestDedupKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		key      string
		id       string
		metadata map[string]string
		payload  string
		want     string // part of the error; empty: no error
	}{
		"id":               {"", "1", nil, "", ""},
		"no id":            {"id", "", nil, "", "dedup: key missing: message has no id: name a key, as metadata.NAME or payload.PATH"},
		"metadata":         {"metadata.Order.Id", "", map[string]string{"Order.Id": "7"}, "", ""},
		"no metadata":      {"metadata.k", "1", nil, "", "dedup: key missing: message has no metadata k"},
		"path":             {"payload.order.ids.0", "", nil, `{"order":{"ids":["a"]}}`, ""},
		"number":           {"payload.id", "", nil, `{"id":12345678901234567890}`, ""},
		"false":            {"payload.id", "", nil, `{"id":false}`, ""},
		"missing path":     {"payload.id", "1", nil, `{"ID":1}`, "dedup: key missing: payload has no id"},
		"null":             {"payload.id", "1", nil, `{"id":null}`, "payload has no id"},
		"empty":            {"payload.id", "1", nil, `{"id":""}`, "payload has no id"},
		"object":           {"payload.id", "1", nil, `{"id":{}}`, "payload.id is not a string, number or boolean"},
		"not JSON":         {"payload.id", "1", nil, "\xff\x00", "payload is not JSON"},
		"no payload":       {"payload.id", "1", nil, "", "payload is not JSON"},
		"long":             {"", long, nil, "", ""},
		"not UTF-8":        {"", "\xff", nil, "", ""},
		"a NUL":            {"", "a\x00b", nil, "", ""},
		"looks like a sum": {"", "sha256:00", nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &spy{DedupStore: middleware.NewMemoryDedup(0)}
			a := transport.NewAttempt(delivery(t, c.id, []byte(c.payload), c.metadata), "c", "g", 1, time.Time{})
			_, err := newDedup(t, middleware.DedupOptions{Key: c.key, Store: store})((&effects{}).handle)(a.Message())
			if c.want == "" {
				require.NoError(t, err)
				settle(t, a, transport.Handled)
				require.LessOrEqual(t, len(store.last.Key), 128)
				require.True(t, strings.ToValidUTF8(store.last.Key, "") == store.last.Key && !strings.Contains(store.last.Key, "\x00"))
				return
			}
			require.ErrorContains(t, err, c.want)
			d := policy(t, transport.Backoff{}).Decide(err, 1)
			require.Equal(t, transport.ActionDead, d.Action)
			reason := transport.ReasonPermanent
			if strings.Contains(c.want, "not JSON") {
				reason = transport.ReasonUndecodable
			}
			require.Equal(t, reason, d.Reason)
		})
	}
}

func TestDedupOptionsAreChecked(t *testing.T) {
	t.Parallel()
	store := middleware.NewMemoryDedup(0)
	for want, o := range map[string]middleware.DedupOptions{
		`dedup key "order": want id`:    {Key: "order", Store: store},
		`dedup key "payload.": want id`: {Key: "payload.", Store: store},
		"no store":                      {},
		"want more than 0":              {Store: store, Window: -1},
		"shorter than the lease":        {Store: store, Window: time.Second},
	} {
		_, err := middleware.Dedup(o)
		require.ErrorContains(t, err, want)
	}
}
