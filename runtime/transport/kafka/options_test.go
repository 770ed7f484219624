package kafka_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// TestNoBroker: it is an outage, with the address in its error.
func TestNoBroker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	tr := open(t, options("kafka://"+addr))
	defer func() { require.NoError(t, tr.Close(within(t))) }()
	err = publish(t, tr, "orders")
	require.ErrorContains(t, err, addr)
	require.False(t, transport.Refused(err))
}

// TestWrongOptions: each is refused before anything is dialed, with what is wrong.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]kafka.Options{
		"no broker is named":       {},
		"want host:port":           {Brokers: []string{"localhost"}},
		"one has an @":             {Brokers: []string{"bob:hunter2@h:9092"}},
		"balancer \"fair\"":        {Balancers: []string{"fair"}},
		"are the broker's":         {GroupProtocol: "consumer", Balancers: []string{"cooperative-sticky"}},
		"rebalance_drain is":       {RebalanceDrain: time.Hour},
		"min_isr 3":                {Replication: 2, MinISR: 3},
		"shows the secret":         {SASL: &kafka.SASL{Mechanism: "plain"}, Username: "u", Password: config.NewSecret("p")},
		"wants username":           {SASL: &kafka.SASL{Mechanism: "scram-sha-512"}},
		"without sasl":             {Username: "u"},
		"exclude each other":       {Password: config.NewSecret("p"), PasswordFile: "f", SASL: &kafka.SASL{Mechanism: "scram-sha-512"}, Username: "u"},
		"one of token":             {SASL: &kafka.SASL{Mechanism: "oauthbearer"}},
		"belong together":          {TLS: &kafka.TLS{Cert: "c"}},
		"compression \"brotli\"":   {Compression: "brotli"},
		"isolation \"none\"":       {Isolation: "none"},
		"session_timeout cannot":   {SessionTimeout: -1},
		"on_out_of_range \"skip\"": {OnOutOfRange: "skip"},
	} {
		if want != "no broker is named" && o.Brokers == nil {
			o.Brokers = []string{"127.0.0.1:1"}
		}
		_, err := kafka.New(o, nil)
		require.ErrorContains(t, err, want)
		require.True(t, transport.Refused(err))
		require.NotContains(t, err.Error(), "\"p\"")
		require.NotContains(t, err.Error(), "hunter2")
	}
	for url, want := range map[string]string{
		"http://x":                      "does not begin",
		"kafka://u:secret@h:9092":       "takes no user",
		"kafka://h:9092/topic":          "hosts and no more",
		"kafka://h:9092?compression=lz": "hosts and no more",
	} {
		_, err := kafka.ParseURL(url)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}
