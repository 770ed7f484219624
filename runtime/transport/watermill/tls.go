package watermill

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSOptions are how a connection is encrypted.
type TLSOptions struct {
	// CA is the file of the certificates to trust. Default: the system's.
	CA string `yaml:"ca"`
	// Cert is the file of the client's own certificate, for mutual TLS.
	Cert string `yaml:"cert"`
	// Key is the file of the key of that certificate.
	Key string `yaml:"key"`
	// ServerName is the name in the broker's certificate. Default: the host.
	ServerName string `yaml:"server_name"`
}

// Validate refuses half a certificate.
func (o TLSOptions) Validate() error {
	if (o.Cert == "") != (o.Key == "") {
		return errors.New("tls: cert and key belong together: give both or none")
	}
	return nil
}

// config reads the files.
func (o *TLSOptions) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("tls ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls ca: %s holds no certificate in PEM", o.CA)
		}
	}
	if o.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("tls cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
