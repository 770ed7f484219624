package amqp_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

func TestOptionsRefuseWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]amqp.Options{
		"the URL is not one":  {URL: config.NewSecret("http://u:secret@h")},
		"percent-encoded":     {URL: config.NewSecret("amqp://u:sec%ret@h")},
		"the port of the URL": {URL: config.NewSecret("amqp://u:secret@h,other:70000")},
		"a comma between":     {URL: config.NewSecret("amqp://u:secret@h,,other")},
		"nothing after":       {URL: config.NewSecret("amqp://u:secret@h/v?heartbeat=1")},
		"write amqps://":      {URL: config.NewSecret("amqp://h"), TLS: amqp.TLSOptions{CA: "ca.pem"}},
		"go together":         {URL: config.NewSecret("amqps://h"), TLS: amqp.TLSOptions{Cert: "c.pem"}},
		"needs a certificate": {URL: config.NewSecret("amqps://h"), TLS: amqp.TLSOptions{External: true}},
		"keep one of them":    {URL: config.NewSecret("amqp://h"), Password: config.NewSecret("secret"), PasswordFile: "f"},
		"say at least 1s":     {URL: config.NewSecret("amqp://h"), Heartbeat: time.Millisecond},
		`topic name "a b"`:    {URL: config.NewSecret("amqp://h"), Topics: map[string]amqp.TopicOptions{"a b": {}}},
	} {
		_, err := amqp.Open(o)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestQueueNamesAreBoundedAndApart(t *testing.T) {
	t.Parallel()
	require.Equal(t, "orders.placed--charge", amqp.Queue("orders.placed", "charge"))
	long := make([]byte, transport.MaxName)
	for i := range long {
		long[i] = 'x'
	}
	a, b := amqp.Queue(string(long), "a"), amqp.Queue(string(long), "b")
	require.NotEqual(t, a, b)
	for _, q := range append(amqp.DelayQueues(a), a) {
		require.LessOrEqual(t, len(q), 255)
	}
}

// TestArgumentsAreAFormat: other ones would not match the queues that are there.
func TestArgumentsAreAFormat(t *testing.T) {
	t.Parallel()
	single := func(o *amqp.Options) { o.SingleActive = true }
	old := func(o *amqp.Options) { o.QueueType = "classic" }
	for _, tc := range []struct {
		version string
		change  func(*amqp.Options)
		want    map[string]any
	}{
		{"4.0.5", func(*amqp.Options) {}, map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int32(-1)}},
		{"4.3.0-rc.1", single, map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int32(-1), "x-single-active-consumer": true}},
		{"3.13.7", func(*amqp.Options) {}, map[string]any{"x-queue-type": "quorum"}},
		{"3.10.8", old, map[string]any{"x-queue-type": "classic"}},
		{"", func(*amqp.Options) {}, map[string]any{"x-queue-type": "quorum"}},
	} {
		require.Equal(t, tc.want, amqp.Arguments(open(t, anywhere, tc.change), tc.version), tc.version)
	}
}

func TestDelaySteps(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]time.Duration{
		0: 0, 249 * time.Millisecond: 0, 250 * time.Millisecond: 250 * time.Millisecond,
		999 * time.Millisecond: 250 * time.Millisecond, 37 * time.Second: 16 * time.Second,
		365 * 24 * time.Hour: 250 * time.Millisecond << 22,
	} {
		require.Equal(t, want, amqp.StepFor(wait), wait)
	}
}

func TestErrorsAreExplained(t *testing.T) {
	t.Parallel()
	server := func(code int, reason string) error { return &amqp091.Error{Code: code, Reason: reason, Server: true} }
	for _, tc := range []struct {
		err     error
		want    string
		refused bool
	}{
		{server(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."), "Login was refused", true},
		{server(530, "NOT_ALLOWED - vhost v not found"), "vhost v not found", true},
		{server(530, "NOT_ALLOWED - access to vhost 'v' refused: connection limit (1) is reached"), "limit", false},
		{
			server(406, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' of type 'longstr' but current is the value 'classic' of type 'longstr'"),
			`queue "q" is there with x-queue-type 'classic' of type 'longstr', and was asked for with 'quorum'`, true,
		},
		{server(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 2000 ms."), "consumer_timeout", false},
		{server(320, "CONNECTION_FORCED - broker forced connection closure"), "forced", false},
		{server(404, "NOT_FOUND - no queue 'q' in vhost '/'"), "no queue 'q'", true},
		{server(404, "NOT_FOUND - no exchange 'e' in vhost '/'"), "no exchange 'e'", true},
		{server(404, "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"), "is down", false},
		{amqp091.ErrCredentials, "connection lost", false},
	} {
		err := amqp.Explain(tc.err)
		require.ErrorContains(t, err, tc.want)
		require.Equal(t, tc.refused, transport.Refused(err), tc.err)
	}
}

// TestErrorsAdvise: what the broker says about logins and rights comes with what
// mends it, and with no secret.
func TestErrorsAdvise(t *testing.T) {
	t.Parallel()
	as := func(url string, change ...func(*amqp.Options)) *amqp.Transport { return open(t, url, change...) }
	shop := as("amqp://shop:hunter2@h/orders")
	external := as("amqps://h", func(o *amqp.Options) {
		o.TLS = amqp.TLSOptions{Cert: "c.pem", Key: "c.key", External: true}
	})
	server := func(code int, reason string) error { return &amqp091.Error{Code: code, Reason: reason, Server: true} }
	const login = "ACCESS_REFUSED - Login was refused using authentication mechanism %s. For details see the broker logfile."
	plain := server(403, strings.ReplaceAll(login, "%s", "PLAIN"))
	eof := &amqp091.Error{Code: 501, Reason: "EOF"}
	for _, tc := range []struct {
		tr      *amqp.Transport
		err     error
		want    []string
		refused bool
	}{
		{shop, plain, []string{"see the broker logfile: user \"shop\"", "check the password", "password_file beside username"}, true},
		{as("amqp://h"), plain, []string{`user "guest"`, "the broker's own machine alone"}, true},
		{external, server(403, strings.ReplaceAll(login, "%s", "EXTERNAL")), []string{"the name in the certificate", "add_user"}, true},
		{shop, server(530, "NOT_ALLOWED - vhost orders not found"), []string{"the path of the URL", "add_vhost 'orders'"}, true},
		{shop, server(530, "NOT_ALLOWED - access to vhost 'orders' refused for user 'shop'"), []string{"grant it: rabbitmqctl set_permissions -p 'orders' 'shop' "}, true},
		{
			shop, server(403, "ACCESS_REFUSED - configure access to exchange 'e' in vhost 'orders' refused for user 'shop'"),
			[]string{"grant the right to configure", "set_permissions -p 'orders' 'shop' ", "used as it is", "topics"},
			true,
		},
		{
			shop, server(403, "ACCESS_REFUSED - write access to topic 'k' in exchange 'e' in vhost 'orders' refused for user 'shop'"),
			[]string{"grant the right to write", "set_permissions -p 'orders' 'shop' "},
			true,
		},
		{
			shop, server(403, "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'shop'"), // before 3.11
			[]string{"grant the right (rabbitmqctl set_permissions -p '/' 'shop' "}, true,
		},
		{shop, eof, []string{"connection lost: EOF: is that the port of a RabbitMQ", "amqps://"}, false},
		{external, eof, []string{"for TLS mostly 5671", "another certificate"}, false},
		{external, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, []string{"mostly 5671", "write amqp://"}, true},
	} {
		err := amqp.ExplainLogin(tc.tr, tc.err)
		for _, want := range tc.want {
			require.ErrorContains(t, err, want)
		}
		require.NotContains(t, err.Error(), "hunter2")
		require.Equal(t, tc.refused, transport.Refused(err), err)
		require.Equal(t, err.Error(), amqp.Explain(err).Error(), "said once")
	}
	require.NotContains(t, amqp.Explain(eof).Error(), "port", "one that was up is none of another service")
}

// TestOtherServices: a port that is another service's is asked after.
func TestOtherServices(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Read(make([]byte, 8)) // the whole of a client's first word
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-hungUp })
	tr := open(t, "amqp://"+l.Addr().String())
	err = tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "t"})
	require.NoError(t, tr.Close(t.Context()))
	require.ErrorContains(t, err, "is that the port of a RabbitMQ")
	require.False(t, transport.Refused(err), "it may be a proxy before a broker that is away")
}
