package amqp_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// TestNodesAreTriedInTurn: any may be the first, but for one that was in trouble.
func TestNodesAreTriedInTurn(t *testing.T) {
	t.Parallel()
	tr := open(t, "amqps://user:pass@a,b:5673,[::1]/vhost")
	first := map[string]bool{}
	for range 200 {
		turns := amqp.Turns(tr)
		require.ElementsMatch(t, []string{"a:5671", "b:5673", "[::1]:5671"}, turns)
		first[turns[0]] = true
	}
	require.Len(t, first, 3)
	amqp.Trouble(tr, "b:5673")
	for range 20 {
		require.Equal(t, "b:5673", amqp.Turns(tr)[2])
	}
	amqp.Trouble(tr, "a:5671")
	require.Equal(t, []string{"[::1]:5671", "b:5673", "a:5671"}, amqp.Turns(tr), "the one that was so first is tried first")
}

// TestNodesThatAreNotThere: another one is taken; only where all refuse is it
// an error that waiting will not mend.
func TestNodesThatAreNotThere(t *testing.T) {
	t.Parallel()
	there, err := url.Parse(brokertest.URL(t, "rabbitmq"))
	require.NoError(t, err)
	const nobody = "127.0.0.1:1"
	for name, tc := range map[string]struct {
		hosts    []string
		password string
		want     []string
		refused  bool
	}{
		"one of two":                 {hosts: []string{nobody, there.Host}, password: "guest"},
		"none":                       {hosts: []string{nobody, "nowhere.invalid:5672"}, password: "guest", want: []string{"connection refused", "nowhere.invalid"}},
		"wrong password, one of two": {hosts: []string{nobody, there.Host}, password: "hunter2", want: []string{"connection refused", "Login was refused"}},
		"wrong password":             {hosts: []string{"localhost:" + there.Port(), there.Host}, password: "hunter2", want: []string{"Login was refused", "localhost:"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			at := url.URL{Scheme: "amqp", User: url.UserPassword("guest", tc.password), Host: strings.Join(tc.hosts, ","), Path: there.Path}
			tr := open(t, anywhere, func(o *amqp.Options) {
				o.URL, o.Log = config.NewSecret(at.String()), slog.New(slog.NewTextHandler(&said, nil))
			})
			amqp.Trouble(tr, tc.hosts[1])
			err := tr.Declare(t.Context(), transport.TopologyVerify, transport.Declaration{Topic: "amq.fanout"})
			require.NoError(t, tr.Close(t.Context()))
			if tc.want == nil {
				require.NoError(t, err)
				require.Contains(t, said.String(), "another node")
				require.Contains(t, said.String(), nobody)
				return
			}
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			require.Equal(t, tc.refused, transport.Refused(err), err)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
