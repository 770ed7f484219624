package worker_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroupsElsewhere: where groups are not ours to list, it is said what lists them.
func TestGroupsElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "")
	p := s.start("groups", "list", "--broker", "amqp://127.0.0.1:1")
	require.Equal(t, 1, p.exit(), p.stderr)
	require.Contains(t, p.stderr.String(), "use rabbitmqctl list_queues name messages consumers")
}

// TestBrokerFlagIsWrong: what is not known is told as in a file.
func TestBrokerFlagIsWrong(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "")
	for url, meant := range map[string]string{"rabbitmq://h": `did you mean "amqp"?`, "kafak://h": `did you mean "kafka"?`, "nothing://h": "there is: "} {
		p := s.start("publish", "--broker", url, "orders", "{}")
		require.NotZero(t, p.exit())
		require.Contains(t, p.stderr.String(), meant)
	}
}

// TestListedTransports: what a broker can do is listed as with topology: declare.
func TestListedTransports(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "")
	out, err := s.command("list", "transports", "-o", "json").Output()
	require.NoError(t, err)
	type row struct {
		Kind   string
		Delay  bool
		Groups bool
	}
	var rows []row
	require.NoError(t, json.Unmarshal(out, &rows))
	require.Contains(t, rows, row{"amqp", true, false})
	require.Contains(t, rows, row{"sqlite", true, true})
}
