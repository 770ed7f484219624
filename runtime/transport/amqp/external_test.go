package amqp_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// secured is a broker that takes clients by their certificates.
type secured struct {
	own  *brokertest.Brokers
	url  string
	ours *authority
}

const securedConf = `
listeners.ssl.1 = 127.0.0.1:%s
ssl_options.cacertfile = /srv/tls/ours.pem
ssl_options.certfile = /srv/tls/server.pem
ssl_options.keyfile = /srv/tls/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
ssl_cert_login_from = common_name
`

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{own: brokertest.Start(t, "rabbitmq"), ours: newAuthority(t, "ours")}
	port := strings.TrimSpace(s.own.Exec("rabbitmq", "printenv", "TLS_PORT"))
	s.url = "amqps://127.0.0.1:" + port
	s.ours.issue("server", []string{"rabbit"})
	data := s.own.Data("rabbitmq")
	require.NoError(t, os.Mkdir(filepath.Join(data, "tls"), 0o700))
	for _, name := range []string{"tls/ours.pem", "tls/server.pem", "tls/server.key"} {
		content, err := os.ReadFile(s.ours.file(filepath.Base(name)))
		require.NoError(t, err)
		s.write(t, filepath.Join(data, name), string(content))
	}
	s.write(t, filepath.Join(data, "rabbitmq.conf"), fmt.Sprintf(securedConf, port))
	s.write(t, filepath.Join(data, "enabled_plugins"), "[rabbitmq_auth_mechanism_ssl].\n")
	require.NoError(t, os.Chmod(filepath.Join(data, "tls"), 0o755))
	s.own.Restart("rabbitmq")
	return s
}

// write writes a file that the broker's user can read.
func (s *secured) write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// user makes one, and a certificate of theirs.
func (s *secured) user(name string) {
	s.ours.issue(name, nil)
	p := place{own: s.own}
	p.ctl("add_user", name, "secret of "+name)
	p.ctl("set_permissions", name, ".*", ".*", ".*")
}

// as are the options of who has a certificate of ours.
func (s *secured) as(name string) amqp.TLSOptions {
	return amqp.TLSOptions{
		CA: s.ours.file("ours.pem"), Cert: s.ours.file(name + ".pem"), Key: s.ours.file(name + ".key"), ServerName: "rabbit", External: true,
	}
}

// TestExternal: a broker takes the certificate for the user, and says why where it does not.
func TestExternal(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.user("client")
	s.ours.issue("stranger", nil)
	others := newAuthority(t, "others")
	others.issue("client", nil)

	t.Run("let in", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, s.own.URL("rabbitmq"), func(o *amqp.Options) { o.URL, o.TLS = config.NewSecret(s.url), s.as("client") })
		r.declare()
		r.publish(3)
		c := r.consumer()
		r.ack(c, r.receive(c, 3)...)
		require.Contains(t, s.users(), "client")
	})
	// Of this alert nothing is left where the broker resets the connection before the client has read it.
	const required = "certificate required"
	for name, tc := range map[string]struct {
		change func(*amqp.Options)
		want   string
	}{
		"another authority than the broker's": {func(o *amqp.Options) { o.TLS.CA = others.file("others.pem") }, "unknown authority"},
		"no certificate":                      {func(o *amqp.Options) { o.TLS.Cert, o.TLS.Key, o.TLS.External = "", "", false }, required},
		"a certificate of others": {func(o *amqp.Options) {
			o.TLS.Cert, o.TLS.Key = others.file("client.pem"), others.file("client.key")
		}, required}, // it is not even shown, as the broker has asked for one of its authority
		"a user who is not known": {func(o *amqp.Options) { o.TLS = s.as("stranger") }, "the name in the certificate"},
		"a certificate, and a wrong password": {func(o *amqp.Options) {
			o.TLS.External, o.Username, o.Password = false, "client", config.NewSecret("hunter2")
		}, `user "client": check the password`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := open(t, s.url, func(o *amqp.Options) {
				o.TLS = s.as("client")
				tc.change(o)
			})
			err := tr.Declare(t.Context(), transport.TopologyVerify, transport.Declaration{Topic: "amq.fanout"})
			require.NoError(t, tr.Close(t.Context()))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "hunter2")
			if tc.want == required && strings.Contains(err.Error(), "connection reset") {
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.True(t, transport.Refused(err), err)
		})
	}
	t.Run("another certificate in the same files", func(t *testing.T) {
		t.Parallel()
		s.user("before")
		s.user("after")
		r := newRig(t, s.own.URL("rabbitmq"), func(o *amqp.Options) { o.URL, o.TLS = config.NewSecret(s.url), s.as("before") })
		r.declare()
		pub := r.producer()
		require.NoError(t, pub.Publish(r.within(), r.topic, message.NewMessage("with the first", nil)))
		for _, suffix := range []string{".pem", ".key"} {
			require.NoError(t, os.Rename(s.ours.file("after"+suffix), s.ours.file("before"+suffix)))
		}
		p := place{own: s.own}
		p.ctl("delete_user", "before")
		p.ctl("close_all_user_connections", "before", "as a test asks")
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return pub.Publish(ctx, r.topic, message.NewMessage("with the second", nil)) == nil
		}, time.Minute, 10*time.Millisecond)
		require.Contains(t, s.users(), "after")
		c := r.consumer()
		r.ack(c, r.receive(c, 2)...)
	})
}

// users are those who are connected.
func (s *secured) users() []string {
	return strings.Fields(s.own.Exec("rabbitmq", "rabbitmqctl", "-q", "--no-table-headers", "list_connections", "user"))
}
