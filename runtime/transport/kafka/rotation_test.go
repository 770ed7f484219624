package kafka_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// testRotation: secrets and certificates are read for each connection. When
// connections end, what is in the files by then counts, be it wrong or right.
func (s *secure) testRotation(t *testing.T) {
	t.Helper()
	other := newAuthority(t)
	for way, enter := range map[string]func(t *testing.T, u user) (o kafka.Options, principal string, spoil, mend func()){
		"password": func(t *testing.T, u user) (kafka.Options, string, func(), func()) {
			t.Helper()
			file := filepath.Join(t.TempDir(), "password")
			write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600)) }
			write("old")
			s.password(t, u, "old")
			o := s.login("scram-sha-256", u.name, "")
			o.Password, o.PasswordFile = config.Secret{}, file
			return o, u.name, func() { s.password(t, u, "new") }, func() { write("new") }
		},
		"token": func(t *testing.T, u user) (kafka.Options, string, func(), func()) {
			t.Helper()
			file := filepath.Join(t.TempDir(), "token")
			write := func(ends time.Duration) {
				require.NoError(t, os.WriteFile(file, []byte(token(u.name, time.Now().Add(ends))), 0o600))
			}
			write(time.Hour)
			o := s.login("oauthbearer", "", "")
			o.SASL.TokenFile = file
			return o, u.name, func() { write(-time.Hour) }, func() { write(time.Hour) }
		},
		"certificate": func(_ *testing.T, u user) (kafka.Options, string, func(), func()) {
			o := s.client(s.ca, u.name)
			write := func(signer *authority) {
				signer.into(o.TLS.Cert, o.TLS.Key, u.name, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			}
			return o, "CN=" + u.name, func() { write(other) }, func() { write(s.ca) }
		},
		"authority": func(t *testing.T, u user) (kafka.Options, string, func(), func()) {
			t.Helper()
			o := s.client(s.ca, u.name)
			right, err := os.ReadFile(o.TLS.CA)
			require.NoError(t, err)
			wrong, err := os.ReadFile(other.file("ca.pem"))
			require.NoError(t, err)
			o.TLS.CA = filepath.Join(t.TempDir(), "ca.pem")
			write := func(text []byte) { require.NoError(t, os.WriteFile(o.TLS.CA, text, 0o600)) }
			write(right)
			return o, "CN=" + u.name, func() { write(wrong) }, func() { write(right) }
		},
		"authority, gone for a moment": func(t *testing.T, u user) (kafka.Options, string, func(), func()) {
			t.Helper()
			o := s.client(s.ca, u.name)
			text, err := os.ReadFile(o.TLS.CA)
			require.NoError(t, err)
			o.TLS.CA = filepath.Join(t.TempDir(), "ca.pem")
			write := func() { require.NoError(t, os.WriteFile(o.TLS.CA, text, 0o600)) }
			write()
			return o, "CN=" + u.name, func() { require.NoError(t, os.Remove(o.TLS.CA)) }, write
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			u := newUser()
			o, principal, spoil, mend := enter(t, u)
			s.mayPublish(t, principal, u.topic)
			s.mayConsume(t, principal, u)
			proxy := brokertest.NewProxy(t, o.Brokers[0])
			tr := open(t, o)
			defer func() { require.NoError(t, tr.Close(within(t))) }()
			kafka.Through(tr, proxy.Addr())
			p, err := tr.OpenProducer(within(t))
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close(within(t))) }()
			send := func(id string) error { return p.Publish(within(t), u.topic, message.NewMessage(id, nil)) }
			m := &member{t: t, tr: tr, u: u}
			defer m.close()
			look := func() error {
				return tr.Declare(within(t), transport.TopologyVerify, transport.Declaration{Topic: u.topic})
			}

			require.NoError(t, send("before"))
			m.handle("before")
			spoil()
			require.NoError(t, send("still"), "an open connection stays")
			m.handle("still")
			proxy.Cut()
			proxy.Heal()
			eventually(t, "a new connection is refused", func() bool { return transport.Refused(look()) })
			mend()
			require.NoError(t, look())
			eventually(t, "it publishes", func() bool { return send("after") == nil })
			m.handle("after")
		})
	}
}

// testDenied has the suites' cases in which the broker no longer takes the
// password, under load, and takes it again.
func (s *secure) testDenied(t *testing.T) {
	t.Helper()
	t.Run("transport", func(t *testing.T) {
		t.Parallel()
		d := s.deniable(t)
		o := suite("kafka://" + s.sasl)
		o.OnlyAlone, o.Patience = true, time.Minute
		o.Lacks["*"] = "not here"
		o.Open = func(tb transporttest.TB) transporttest.Broker {
			link := brokertest.NewProxy(tb, s.sasl)
			return transporttest.Broker{
				Transport: func(tb transporttest.TB) transport.Transport { return d.enter(tb, link) },
				Link:      link, Deny: func(transporttest.TB) func() { return d.deny(link) },
			}
		}
		require.NotContains(t, transporttest.Run(t, o).Skipped(), "I10_denied")
	})
	t.Run("engine", func(t *testing.T) {
		t.Parallel()
		d := s.deniable(t)
		o := engine("kafka://" + s.sasl)
		o.OnlyAlone, o.Patience = true, 2*time.Minute
		o.Lacks["*"] = "not here"
		o.Open = func(tb conformance.TB) conformance.Broker {
			link := brokertest.NewProxy(tb, s.sasl)
			return conformance.Broker{
				Transport: func(tb conformance.TB) transport.Transport { return d.enter(tb, link) },
				Link:      link, Deny: func(conformance.TB) func() { return d.deny(link) },
			}
		}
		require.NotContains(t, conformance.Run(t, o).Skipped(), "I10_denied")
	})
}

// deniable is a user who may do all, for as long as the password is taken.
type deniable struct {
	*secure
	user
	t *testing.T
}

func (s *secure) deniable(t *testing.T) *deniable {
	t.Helper()
	d := &deniable{s, newUser(), t}
	s.password(t, d.user, "right")
	s.allow(t, d.name, []string{"*"}, []string{"*"}, kadm.OpAll)
	return d
}

func (d *deniable) enter(tb transporttest.TB, link *brokertest.Proxy) transport.Transport {
	tr := open(tb, d.login("scram-sha-512", d.name, "right"))
	kafka.Through(tr, link.Addr())
	return tr
}

func (d *deniable) deny(link *brokertest.Proxy) (allow func()) {
	d.password(d.t, d.user, "another")
	link.Cut()
	link.Heal()
	return func() { d.password(d.t, d.user, "right") }
}
