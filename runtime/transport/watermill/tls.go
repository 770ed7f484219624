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
	// CAFile has the certificates to trust. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile has the client's own certificate, for mutual TLS.
	CertFile string `yaml:"cert_file"`
	// KeyFile has the key of that.
	KeyFile string `yaml:"key_file"`
	// ServerName is the name in the broker's certificate. Default: the host.
	ServerName string `yaml:"server_name"`
}

// Validate refuses half a certificate.
func (o TLSOptions) Validate() error {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("tls: cert_file and key_file belong together: give both or none")
	}
	return nil
}

// config reads the files.
func (o *TLSOptions) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls ca_file: %s holds no certificate in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
