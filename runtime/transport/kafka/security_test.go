package kafka_test

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// TestSecurity is about a real broker that wants TLS, logins and rights.
func TestSecurity(t *testing.T) {
	t.Parallel()
	s := newSecure(t)
	t.Run("logins", func(t *testing.T) {
		t.Parallel()
		s.testLogins(t)
	})
	t.Run("wrong", func(t *testing.T) {
		t.Parallel()
		s.testWrong(t)
	})
	t.Run("rights", func(t *testing.T) {
		t.Parallel()
		s.testRights(t)
	})
	t.Run("rotation", func(t *testing.T) {
		t.Parallel()
		s.testRotation(t)
	})
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		s.testDenied(t)
	})
}

// testLogins: each way in works from end to end, with the rights that
// docs/kafka.md names.
func (s *secure) testLogins(t *testing.T) {
	t.Helper()
	for way, enter := range map[string]func(t *testing.T, u user) (o kafka.Options, principal string){
		"plain": func(*testing.T, user) (kafka.Options, string) { return s.login("plain", "plain", "right"), "plain" },
		"scram-sha-256": func(t *testing.T, u user) (kafka.Options, string) {
			t.Helper()
			s.password(t, u, "right")
			return s.login("scram-sha-256", u.name, "right"), u.name
		},
		"scram-sha-512": func(t *testing.T, u user) (kafka.Options, string) {
			t.Helper()
			s.password(t, u, "right")
			o := s.login("scram-sha-512", u.name, "right")
			o.TLS = &kafka.TLS{Insecure: true}
			return o, u.name
		},
		"oauthbearer": func(_ *testing.T, u user) (kafka.Options, string) {
			o := s.login("oauthbearer", "", "")
			o.SASL.Token = config.NewSecret(token(u.name, time.Now().Add(time.Hour)))
			return o, u.name
		},
		"certificate": func(_ *testing.T, u user) (kafka.Options, string) { return s.client(s.ca, u.name), "CN=" + u.name },
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			u := newUser()
			o, principal := enter(t, u)
			s.mayPublish(t, principal, u.topic)
			s.mayConsume(t, principal, u)
			tr := open(t, o)
			defer func() { require.NoError(t, tr.Close(within(t))) }()
			require.NoError(t, publish(t, tr, u.topic))
			c, err := tr.OpenConsumer(within(t), u.reads())
			require.NoError(t, err)
			ds, err := c.Receive(within(t), 1, 1<<20)
			require.NoError(t, err)
			settle(t, c, transport.Ack, ds...)
			require.NoError(t, c.Close(within(t)))
			depth, err := tr.Depth(within(t), u.topic, u.group)
			require.NoError(t, err)
			require.Zero(t, depth.Ready, "it is committed")
		})
	}
}

// publish sends one message, by a producer of its own.
func publish(t *testing.T, tr *kafka.Transport, topic string) error {
	t.Helper()
	p, err := tr.OpenProducer(within(t))
	require.NoError(t, err)
	defer func() { _ = p.Close(within(t)) }() // nothing is under way
	return p.Publish(within(t), topic, message.NewMessage("m", nil))
}

// testRights: what a publisher may not do is permanent, and what docs/kafka.md
// says that groups are looked after with is enough.
func (s *secure) testRights(t *testing.T) {
	t.Helper()
	enter := func(t *testing.T) (user, *kafka.Transport) {
		t.Helper()
		u := newUser()
		s.password(t, u, "right")
		tr := open(t, s.login("scram-sha-512", u.name, "right"))
		t.Cleanup(func() { require.NoError(t, tr.Close(context.Background())) })
		return u, tr
	}
	t.Run("publish", func(t *testing.T) {
		t.Parallel()
		u, tr := enter(t)
		denied := func(topic string) {
			t.Helper()
			err := publish(t, tr, topic)
			require.ErrorContains(t, err, "TOPIC_AUTHORIZATION_FAILED")
			require.ErrorContains(t, err, "Write on those it publishes to, and Create to make them")
			require.True(t, permanentOf(err), "%v", err)
		}
		denied(u.topic)
		s.allow(t, u.name, []string{u.topic}, nil, kadm.OpDescribe)
		denied(u.topic)
		s.create(t, u.topic)
		denied(u.topic)
		s.mayPublish(t, u.name, u.topic)
		eventually(t, "it may", func() bool { return publish(t, tr, u.topic) == nil })
		denied(u.topic + "-other")
	})
	t.Run("groups", func(t *testing.T) {
		t.Parallel()
		u, tr := enter(t)
		s.create(t, u.topic)
		at := kadm.Offsets{}
		at.AddOffset(u.topic, 0, 0, -1)
		eventually(t, "the coordinator knows the new topic", func() bool { return s.adm.CommitAllOffsets(t.Context(), u.group, at) == nil })
		all, err := tr.Groups(within(t))
		require.NoError(t, err)
		require.Empty(t, all, "it may see none")
		s.allow(t, u.name, []string{u.topic}, []string{u.group}, kadm.OpDescribe)
		eventually(t, "it sees the one", func() bool {
			all, err := tr.Groups(within(t))
			return err == nil && len(all) == 1 && all[0].Group == u.group
		})
		err = tr.DropGroup(within(t), u.topic, u.group)
		require.ErrorContains(t, err, "GROUP_AUTHORIZATION_FAILED")
		require.True(t, transport.Refused(err))
		s.allow(t, u.name, nil, []string{u.group}, kadm.OpDelete)
		eventually(t, "it may drop it", func() bool { return tr.DropGroup(within(t), u.topic, u.group) == nil })
	})
}

// permanentOf tells whether all of a publish has failed for good.
func permanentOf(err error) bool {
	pe, ok := err.(*transport.PublishError) //nolint:errorlint // as Publish returns it
	return ok && pe.Failed[0].Permanent
}

// TestExpired: a broker's certificate that has ended is refused by that.
func TestExpired(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ended := ca.server(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	o := options("kafka://" + cluster(t, kfake.TLS(ended)).ListenAddrs()[0])
	o.TLS = &kafka.TLS{CA: ca.file("ca.pem")}
	tr := open(t, o)
	defer func() { require.NoError(t, tr.Close(within(t))) }()
	err := publish(t, tr, "orders")
	require.ErrorContains(t, err, "expired")
	require.ErrorContains(t, err, o.Brokers[0])
	require.True(t, transport.Refused(err))
	require.False(t, permanentOf(err), "the message can be published when there is a new one")
}
