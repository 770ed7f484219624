package amqp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// tlsConfig reads the files of o anew.
func (o *Options) tlsConfig(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if o.TLS.ServerName != "" {
		c.ServerName = o.TLS.ServerName
	}
	if o.TLS.CA != "" {
		pem, err := os.ReadFile(o.path(o.TLS.CA))
		if err != nil {
			return nil, transport.Refuse(fmt.Errorf("tls.ca: %w", err))
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, transport.Refuse(fmt.Errorf("tls.ca %s holds no certificate in PEM", o.TLS.CA))
		}
	}
	if o.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.path(o.TLS.Cert), o.path(o.TLS.Key))
		if err != nil {
			return nil, transport.Refuse(fmt.Errorf("tls.cert and tls.key: %w", err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (o *Options) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(o.Dir, name)
}

// refusedByTLS tells whether a handshake failed by what either side presented.
func refusedByTLS(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // as package tls names an alert
		return true
	}
	var (
		verification *tls.CertificateVerificationError
		alert        tls.AlertError
		record       tls.RecordHeaderError
	)
	return errors.As(err, &verification) || errors.As(err, &alert) || errors.As(err, &record)
}

// login is a SASL mechanism. The client library asks it for its response when
// the properties of the handshake are complete, and login adds one to them: by
// it the broker says why it refuses a login, where it would just hang up.
type login struct {
	amqp091.Authentication
	properties amqp091.Table
}

func (l login) Response() string {
	if able, ok := l.properties["capabilities"].(amqp091.Table); ok {
		able["authentication_failure_close"] = true
	}
	return l.Authentication.Response()
}

// login makes the mechanism for one connection, with the password as it is now.
func (t *Transport) login(properties amqp091.Table) (amqp091.Authentication, error) {
	if t.o.TLS.External {
		return login{&amqp091.ExternalAuth{}, properties}, nil
	}
	password := t.target.password.Reveal()
	if t.o.PasswordFile != "" {
		text, err := os.ReadFile(t.o.path(t.o.PasswordFile))
		if err != nil {
			return nil, transport.Refuse(fmt.Errorf("password_file: %w", err))
		}
		password = strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	}
	return login{&amqp091.PlainAuth{Username: t.target.username, Password: password}, properties}, nil
}
