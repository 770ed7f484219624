package amqp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// authority signs certificates, which it writes to files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue(name, nil)
	return a
}

// issue makes NAME.pem and NAME.key.
func (a *authority) issue(name string, hosts []string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	for suffix, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		require.NoError(a.t, os.WriteFile(filepath.Join(a.dir, name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// gate lets connections through to the broker, by TLS where it has a
// configuration, and can put in what the broker has not sent.
type gate struct {
	net.Listener
	mu      sync.Mutex
	clients []net.Conn
}

func newGate(t *testing.T, target string, secure *tls.Config) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{Listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := g.Accept()
			if err != nil {
				return
			}
			if secure != nil {
				client = tls.Server(client, secure)
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			g.mu.Lock()
			g.clients = append(g.clients, client)
			g.mu.Unlock()
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				running.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		for _, c := range g.clients {
			_ = c.Close()
		}
		g.mu.Unlock()
		running.Wait()
	})
	return g
}

// put writes to all clients.
func (g *gate) put(b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.clients {
		_, _ = c.Write(b)
	}
}

// through is the URL of the broker by way of the gate.
func (g *gate) through(t *testing.T, scheme, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.Scheme, u.Host = scheme, g.Addr().String()
	return u.String()
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u.Host
}

// TestTLS: the broker's certificate is held against authority and name, and
// the client's own is shown.
func TestTLS(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	ours.issue("server", []string{"rabbit"})
	ours.issue("client", nil)
	others.issue("client", nil)
	pair, err := tls.LoadX509KeyPair(ours.file("server.pem"), ours.file("server.key"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	g := newGate(t, hostOf(t, address), &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})
	right := amqp.TLSOptions{
		CA: ours.file("ours.pem"), Cert: ours.file("client.pem"), Key: ours.file("client.key"), ServerName: "rabbit",
	}
	for name, tc := range map[string]struct {
		change func(*amqp.TLSOptions)
		want   string
	}{
		"right":             {func(*amqp.TLSOptions) {}, ""},
		"another authority": {func(o *amqp.TLSOptions) { o.CA = others.file("others.pem") }, "unknown authority"},
		"another name":      {func(o *amqp.TLSOptions) { o.ServerName = "hare" }, "not hare"},
		"no certificate":    {func(o *amqp.TLSOptions) { o.Cert, o.Key = "", "" }, "certificate required"},
		"not its own": {func(o *amqp.TLSOptions) {
			o.Cert, o.Key = others.file("client.pem"), others.file("client.key")
		}, "certificate"},
		"no file":                        {func(o *amqp.TLSOptions) { o.CA = "missing.pem" }, "missing.pem"},
		"no certificates":                {func(o *amqp.TLSOptions) { o.CA = ours.file("ours.key") }, "holds no certificate"},
		"external, which is not offered": {func(o *amqp.TLSOptions) { o.External = true }, "SASL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := right
			tc.change(&o)
			tr := open(t, address, func(all *amqp.Options) {
				all.URL, all.TLS = config.NewSecret(g.through(t, "amqps", address)), o
			})
			err := tr.Declare(t.Context(), transport.TopologyVerify, transport.Declaration{Topic: "amq.fanout"})
			require.NoError(t, tr.Close(t.Context()))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.True(t, transport.Refused(err), err)
		})
	}
}

// TestFrameError: a stream that makes no sense ends its connection; what was
// held comes again.
func TestFrameError(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	g := newGate(t, hostOf(t, address), nil)
	r := newRig(t, address, func(o *amqp.Options) { o.URL = config.NewSecret(g.through(t, "amqp", address)) })
	r.declare()
	r.publish(3)
	c := r.consumer()
	r.ack(c, r.receive(c, 3)[0])
	g.put([]byte("this is no frame of AMQP"))
	_, err := c.Receive(r.within(), 1, 1)
	require.ErrorContains(t, err, "connection")
	require.False(t, transport.Refused(err))
	require.NoError(t, c.Close(r.within()))
	require.Eventually(t, func() bool { // the other connections are found out, too
		c, err = r.tr.OpenConsumer(r.within(), r.config("c"))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Len(t, r.receive(c, 2), 2)
	require.NoError(t, c.Close(r.within()))
}
