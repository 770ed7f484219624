package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// secure is a real broker that asks who comes, and what they may do.
type secure struct {
	plain, tls, sasl string // its listeners: the second wants a client's certificate, the third a login
	ca               *authority
	adm              *kadm.Client // may do all
}

func newSecure(t *testing.T) *secure {
	t.Helper()
	brokers := brokertest.Start(t, "kafka-secure")
	addresses := options(brokers.URL("kafka-secure")).Brokers
	require.Len(t, addresses, 3)
	s := &secure{plain: addresses[0], tls: addresses[1], sasl: addresses[2]}
	data := brokers.Data("kafka-secure")
	pair, err := tls.LoadX509KeyPair(filepath.Join(data, "ca.pem"), filepath.Join(data, "server.pem"))
	require.NoError(t, err)
	s.ca = &authority{t: t, dir: t.TempDir(), cert: pair.Leaf, key: pair.PrivateKey.(*ecdsa.PrivateKey)} //nolint:forcetypeassert // as it is made
	s.ca.write(s.ca.file("ca.pem"), "CERTIFICATE", pair.Leaf.Raw)
	s.adm = s.admin(t)
	return s
}

func (s *secure) admin(t *testing.T) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.plain))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

// user is one who may log in, and what it uses: names that nobody else has.
type user struct {
	name, topic, group string
}

func newUser() user {
	name := fmt.Sprintf("u%08x", rand.Uint32())
	return user{name, name + "-orders", name + "-charge"}
}

func (u user) dead() string { return u.topic + "--" + u.group + "--dead" }

// reads is its consumer.
func (u user) reads() transport.ConsumerConfig {
	return transport.ConsumerConfig{Topics: []string{u.topic}, Group: u.group, Prefetch: 1, PrefetchBytes: 1 << 20, Base: context.Background()}
}

// member reads as its user, for as long as it takes: as the engine does, it
// opens its consumer again when that has failed.
type member struct {
	t  *testing.T
	tr *kafka.Transport
	u  user
	c  transport.Consumer
}

// handle waits for a message, and acks what it gets up to there.
func (m *member) handle(id string) {
	m.t.Helper()
	for ctx := within(m.t); ; {
		require.NoError(m.t, ctx.Err(), "%s does not come", id)
		if m.c == nil {
			c, err := m.tr.OpenConsumer(ctx, m.u.reads())
			if err != nil {
				continue
			}
			m.c = c
		}
		ds, err := m.c.Receive(ctx, 1, 1<<20)
		if err == nil {
			err = m.c.Settle(ctx, []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}})
		}
		switch {
		case err != nil:
			m.close()
		case ds[0].ID == id:
			return
		}
	}
}

func (m *member) close() {
	if m.c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = m.c.Close(ctx) // its connections may be no good
		m.c = nil
	}
}

// password sets the one with which a user logs in.
func (s *secure) password(t *testing.T, u user, password string) {
	t.Helper()
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		set, err := s.adm.AlterUserSCRAMs(within(t), nil, []kadm.UpsertSCRAM{{User: u.name, Mechanism: m, Iterations: 4096, Password: password}})
		require.NoError(t, err)
		require.NoError(t, set.Error())
	}
	auth := scram.Auth{User: u.name, Pass: password}
	for _, m := range []sasl.Mechanism{auth.AsSha256Mechanism(), auth.AsSha512Mechanism()} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.sasl), kgo.SASL(m), kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true}))
		require.NoError(t, err)
		eventually(t, "the broker knows the password", func() bool { return cl.Ping(t.Context()) == nil })
		cl.Close()
	}
}

// allow lets a principal do something to topics and groups of these names.
func (s *secure) allow(t *testing.T, principal string, topics, groups []string, ops ...kadm.ACLOperation) {
	t.Helper()
	b := kadm.NewACLs().MaybeTopics(topics...).MaybeGroups(groups...).Allow("User:" + principal).AllowHosts().Operations(ops...).ResourcePatternType(kadm.ACLPatternLiteral)
	made, err := s.adm.CreateACLs(within(t), b)
	require.NoError(t, err)
	for _, m := range made {
		require.NoError(t, m.Err)
	}
	eventually(t, "the broker goes by it", func() bool {
		known, err := s.adm.DescribeACLs(t.Context(), b)
		return err == nil && !slices.ContainsFunc(known, func(r kadm.DescribeACLsResult) bool { return len(r.Described) == 0 })
	})
}

// mayConsume gives the rights that docs/kafka.md names.
func (s *secure) mayConsume(t *testing.T, principal string, u user) {
	t.Helper()
	s.allow(t, principal, []string{u.topic}, nil, kadm.OpRead, kadm.OpDescribe)
	s.allow(t, principal, nil, []string{u.group}, kadm.OpRead)
}

// mayPublish likewise.
func (s *secure) mayPublish(t *testing.T, principal, topic string) {
	t.Helper()
	s.allow(t, principal, []string{topic}, nil, kadm.OpWrite, kadm.OpDescribe, kadm.OpCreate)
}

// create makes a topic that nobody has rights to yet.
func (s *secure) create(t *testing.T, topic string) {
	t.Helper()
	made, err := s.adm.CreateTopic(within(t), 1, -1, nil, topic)
	require.NoError(t, err, made.ErrMessage)
}

// at is a way in by one of the listeners.
func (s *secure) at(listener string) kafka.Options {
	o := options("kafka://" + listener)
	if listener != s.plain {
		o.TLS = &kafka.TLS{CA: s.ca.file("ca.pem")}
	}
	return o
}

// login is a way in with name and password.
func (s *secure) login(mechanism, name, password string) kafka.Options {
	o := s.at(s.sasl)
	o.SASL, o.Username, o.Password = &kafka.SASL{Mechanism: mechanism}, name, config.NewSecret(password)
	return o
}

// client makes the certificate of a client, and is a way in with it.
func (s *secure) client(signer *authority, name string) kafka.Options {
	signer.issue(name, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	o := s.at(s.tls)
	o.TLS.Cert, o.TLS.Key = signer.file(name+".pem"), signer.file(name+"-key.pem")
	return o
}

// token is one that nobody has signed, as the broker takes them.
func token(name string, ends time.Time) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none"}`)) + "." + enc(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, name, ends.Add(-time.Hour).Unix(), ends.Unix())) + "."
}
