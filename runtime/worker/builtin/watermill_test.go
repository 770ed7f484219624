package builtin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

// TestWatermillURLs: credentials in a URL are read, and shown by no error.
func TestWatermillURLs(t *testing.T) {
	t.Parallel()
	kinds := map[string]worker.TransportKind{}
	for _, k := range builtin.Table().Transports {
		kinds[k.Kind] = k
	}
	for url, ok := range map[string]bool{
		"watermill-kafka://h1:9092,h2:9092":                  true,
		"watermill-kafka://user:p%40ss@h1:9092":              true,
		"watermill-kafka://":                                 false,
		"watermill-kafka://user:sec%ret@h1:9092":             false,
		"watermill-amqp://user:p%40ss@h/vhost":               true,
		"watermill-amqp://user:sec%ret@h":                    false,
		"watermill-postgres://user:p%40ss@h/d":               true,
		"watermill-postgres://user:sec%ret@h/d":              false,
		"watermill-mysql://user:p%40ss@h/d":                  true,
		"watermill-mysql://user:sec%ret@h/d":                 false,
		"watermill-mysql://user:secret@/database-of-no-host": false,
	} {
		kind, _, _ := strings.Cut(url, ":")
		tr, err := kinds[kind].Open(env(), component(kind, url, t.TempDir()))
		if ok {
			require.NoError(t, err, url)
			require.NoError(t, tr.Close(t.Context()))
			continue
		}
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "sec", url)
	}
}
