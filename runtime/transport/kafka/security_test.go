package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// authority signs certificates for 127.0.0.1, into files of a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME-key.pem.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.Subject = pkix.Name{CommonName: name}
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+"-key.pem", "PRIVATE KEY", private)
	made, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return made, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	require.NoError(a.t, os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) server(change ...func(*x509.Certificate)) *tls.Config {
	a.t.Helper()
	c := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, fn := range change {
		fn(c)
	}
	a.issue("server", c)
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server-key.pem"))
	require.NoError(a.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// use publishes and receives one message.
func use(t *testing.T, o kafka.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tr := open(t, o)
	defer func() { require.NoError(t, tr.Close(ctx)) }()
	p, err := tr.OpenProducer(ctx)
	require.NoError(t, err)
	defer func() { _ = p.Close(ctx) }()
	if err := p.Publish(ctx, "orders", message.NewMessage("m", nil)); err != nil {
		return err
	}
	c, err := tr.OpenConsumer(ctx, transport.ConsumerConfig{Topics: []string{"orders"}, Group: "charge", Prefetch: 1, PrefetchBytes: 1 << 20, Base: ctx})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	_, err = c.Receive(ctx, 1, 1<<20)
	return err
}

func at(c *kfake.Cluster) kafka.Options {
	return options("kafka://" + strings.Join(c.ListenAddrs(), ","))
}

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second), kfake.SeedTopics(2, "orders")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	ca.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	trusts := kafka.TLS{CA: ca.file("ca.pem")}
	mutual := ca.server()
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, pool

	for name, tc := range map[string]struct {
		server  *tls.Config
		client  *kafka.TLS
		wrong   string // in the error; empty: it works
		refused bool
	}{
		"trusted":            {server: ca.server(), client: &trusts},
		"insecure":           {server: ca.server(), client: &kafka.TLS{Insecure: true}},
		"mutual":             {server: mutual, client: &kafka.TLS{CA: trusts.CA, Cert: ca.file("client.pem"), Key: ca.file("client-key.pem")}},
		"wrong authority":    {ca.server(), &kafka.TLS{CA: other.file("ca.pem")}, "certificate", true},
		"unknown authority":  {ca.server(), &kafka.TLS{}, "certificate", true},
		"wrong host":         {ca.server(), &kafka.TLS{CA: trusts.CA, ServerName: "kafka.example"}, "kafka.example", true},
		"expired":            {ca.server(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), &trusts, "expired", true},
		"no client's":        {mutual, &trusts, "certificate required", false},
		"broker without TLS": {nil, &trusts, "may not speak it", false},
		"client without TLS": {ca.server(), nil, "TLS", false},
		"no such file":       {ca.server(), &kafka.TLS{CA: "/no/such/file"}, "tls.ca", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts []kfake.Opt
			if tc.server != nil {
				opts = append(opts, kfake.TLS(tc.server))
			}
			o := at(cluster(t, opts...))
			o.TLS = tc.client
			err := use(t, o)
			if tc.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wrong)
			require.Equal(t, tc.refused, transport.Refused(err) || permanentOf(err), "%v", err)
		})
	}
}

// permanentOf tells whether all of a publish has failed for good.
func permanentOf(err error) bool {
	pe, ok := err.(*transport.PublishError) //nolint:errorlint // as Publish returns it
	return ok && pe.Failed[0].Permanent
}

func TestSASL(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "worker", "right"))
			o := at(c)
			o.SASL, o.Username = &kafka.SASL{Mechanism: mechanism, Plaintext: true}, "worker"

			o.Password = config.NewSecret("wrong-secret")
			err := use(t, o)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "wrong-secret")

			// The file is read for each connection.
			o.Password, o.PasswordFile = config.Secret{}, filepath.Join(t.TempDir(), "password")
			require.NoError(t, os.WriteFile(o.PasswordFile, []byte("old\n"), 0o600))
			tr := open(t, o)
			require.Error(t, tr.Declare(within(t), transport.TopologyDeclare, transport.Declaration{Topic: "orders"}))
			require.NoError(t, os.WriteFile(o.PasswordFile, []byte("right\n"), 0o600))
			require.NoError(t, tr.Declare(within(t), transport.TopologyDeclare, transport.Declaration{Topic: "orders"}))
			require.NoError(t, tr.Close(within(t)))
			require.NoError(t, use(t, o))

			o.SASL = nil
			o.Username, o.PasswordFile = "", ""
			require.ErrorContains(t, use(t, o), "SASL")
		})
	}
}

// TestLoginDenied: a no to the login is refused at the start.
func TestLoginDenied(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	for _, key := range []kmsg.Key{kmsg.SASLHandshake, kmsg.SASLAuthenticate} {
		c.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind()
			if a, ok := resp.(*kmsg.SASLAuthenticateResponse); ok {
				a.ErrorCode, a.ErrorMessage = kerr.SaslAuthenticationFailed.Code, new("Authentication failed")
			}
			return resp, nil, true
		})
	}
	o := at(c)
	o.SASL, o.Username, o.Password = &kafka.SASL{Mechanism: "plain", Plaintext: true}, "worker", config.NewSecret("wrong-secret")
	tr := open(t, o)
	defer func() { require.NoError(t, tr.Close(within(t))) }()
	err := tr.Declare(within(t), transport.TopologyDeclare, transport.Declaration{Topic: "orders"})
	require.ErrorContains(t, err, "SASL_AUTHENTICATION_FAILED")
	require.True(t, transport.Refused(err))
	require.NotContains(t, err.Error(), "wrong-secret")
}

// TestOAuthBearer: the token is that of the file.
func TestOAuthBearer(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	sent := make(chan string, 10)
	for _, key := range []kmsg.Key{kmsg.SASLHandshake, kmsg.SASLAuthenticate} {
		c.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if a, ok := r.(*kmsg.SASLAuthenticateRequest); ok {
				sent <- string(a.SASLAuthBytes)
			}
			return r.ResponseKind(), nil, true
		})
	}
	o := at(c)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("the-token\n"), 0o600))
	o.SASL = &kafka.SASL{Mechanism: "oauthbearer", TokenFile: file, Plaintext: true}
	tr := open(t, o)
	defer func() { require.NoError(t, tr.Close(within(t))) }()
	_ = tr.Declare(within(t), transport.TopologyVerify, transport.Declaration{Topic: "orders"}) // the token is what counts here
	require.Contains(t, <-sent, "auth=Bearer the-token\x01")
}

// TestMissingRights: what the user may not do is named, and refused at the start.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	allow := func(resource kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) []kfake.ACL {
		var out []kfake.ACL
		for _, op := range ops {
			out = append(out, kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true})
		}
		return out
	}
	topic := allow(kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationWrite)
	group := allow(kmsg.ACLResourceTypeGroup, "charge", kmsg.ACLOperationRead, kmsg.ACLOperationDescribe)
	for name, tc := range map[string]struct {
		acls  []kfake.ACL
		wrong string
	}{
		"all that is needed": {acls: append(topic, group...)},
		"no group":           {topic, "GROUP_AUTHORIZATION_FAILED"},
		"no topic":           {group, "AUTHORIZATION_FAILED"},
		"no write":           {append(topic[:2:2], group...), "AUTHORIZATION_FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "worker", "right", tc.acls...))
			o := at(c)
			o.SASL, o.Username, o.Password = &kafka.SASL{Mechanism: "plain", Plaintext: true}, "worker", config.NewSecret("right")
			err := use(t, o)
			if tc.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wrong)
			require.True(t, transport.Refused(err) || permanentOf(err), "%v", err)
		})
	}
}

// TestNoBroker: it is an outage, with the address in its error.
func TestNoBroker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	err = use(t, options("kafka://"+addr))
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
