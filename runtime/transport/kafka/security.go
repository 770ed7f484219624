package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// checkSecurity refuses a login that cannot work, and one that would show its
// secret to the network.
func (o *Options) checkSecurity() []error {
	var errs []error
	bad := func(text string) { errs = append(errs, errors.New("kafka broker: "+text)) }
	if !o.Password.IsZero() && o.PasswordFile != "" {
		bad("password and password_file exclude each other")
	}
	if o.TLS != nil && (o.TLS.Cert == "") != (o.TLS.Key == "") {
		bad("tls.cert and tls.key belong together")
	}
	if o.SASL == nil {
		if o.Username != "" || !o.Password.IsZero() || o.PasswordFile != "" {
			bad("username and password are given without sasl: {mechanism: …}")
		}
		return errs
	}
	switch o.SASL.Mechanism {
	case mechanismPlain, mechanismSCRAM256, mechanismSCRAM512:
		if o.Username == "" || o.Password.IsZero() && o.PasswordFile == "" {
			bad("sasl " + o.SASL.Mechanism + " wants username, and password or password_file")
		}
	case mechanismOAuth:
		if o.SASL.Token.IsZero() == (o.SASL.TokenFile == "") {
			bad("sasl oauthbearer wants one of token and token_file")
		}
	default:
		bad("sasl mechanism: there is plain, scram-sha-256, scram-sha-512, oauthbearer")
	}
	open := o.SASL.Mechanism == mechanismPlain || o.SASL.Mechanism == mechanismOAuth
	if open && o.TLS == nil && !o.SASL.Plaintext {
		bad("sasl " + o.SASL.Mechanism + " without tls shows the secret to the network: add tls: {}, or allow it with sasl.plaintext: true")
	}
	return errs
}

const (
	mechanismPlain    = "plain"
	mechanismSCRAM256 = "scram-sha-256"
	mechanismSCRAM512 = "scram-sha-512"
	mechanismOAuth    = "oauthbearer"
)

// mechanism logs in; the secret is read for each connection.
func (o *Options) mechanism() sasl.Mechanism {
	password := func() (string, error) { return secret(o.Password, "password_file", o.PasswordFile) }
	scramAuth := func(context.Context) (scram.Auth, error) {
		pass, err := password()
		return scram.Auth{User: o.Username, Pass: pass}, err
	}
	switch o.SASL.Mechanism {
	case mechanismPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := password()
			return plain.Auth{User: o.Username, Pass: pass}, err
		})
	case mechanismSCRAM256:
		return scram.Sha256(scramAuth)
	case mechanismSCRAM512:
		return scram.Sha512(scramAuth)
	default:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := secret(o.SASL.Token, "sasl.token_file", o.SASL.TokenFile)
			return oauth.Auth{Token: token}, err
		})
	}
}

func secret(value config.Secret, key, file string) (string, error) {
	if file == "" {
		return value.Reveal(), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", transport.Refuse(fmt.Errorf("%s: %w", key, err))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// dialTimeout bounds a connection and its handshake.
const dialTimeout = 3 * time.Second

// dial opens a connection, with the certificates that are in the files now.
func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if o.TLS == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	config, err := o.TLS.config(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	dialed, ok := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case err == nil:
		return conn, nil
	case certificate:
		return nil, fmt.Errorf("TLS with %s: %w: the certificate has to be signed by an authority of tls.ca, or one of the system, for the host that is dialed or tls.server_name", address, err)
	case ok && dialed.Op == remoteAlert:
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	case !ok || dialed.Op != "dial":
		return nil, fmt.Errorf("TLS with %s, which may not speak it at this port: %w", address, err)
	}
	return nil, err
}

func (t *TLS) config(address string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure} //nolint:gosec // only if asked for by name
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		c.ServerName = host
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, transport.Refuse(fmt.Errorf("tls.ca: %w", err))
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, transport.Refuse(fmt.Errorf("tls.ca %q: no certificate in it", t.CA))
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, transport.Refuse(fmt.Errorf("tls.cert, tls.key: %w", err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
