package sqldb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Server says which PostgreSQL, MariaDB or MySQL server to use, and how. The
// zero value of a field means its default; one that is set goes before what the
// URL says of the same.
type Server struct {
	// URL is postgres://USER:PASSWORD@HOST:PORT/DATABASE or mysql://…; required.
	// As a query it takes schema, table_prefix, pool_size, connect_timeout,
	// statement_timeout, application_name and pooler; for PostgreSQL also what
	// libpq takes (sslmode, sslrootcert, target_session_attrs; several hosts);
	// for MySQL tls=true.
	URL string `yaml:"url"`
	// Username to log in with, as it is: nothing in it is escaped.
	Username string `yaml:"username"`
	// Password to log in with, as it is: nothing in it is escaped.
	Password string `yaml:"password"`
	// Database on the server. It must exist.
	Database string `yaml:"database"`
	// Schema that has the tables, on PostgreSQL only. It is made where it is
	// missing. Default: the first of the user's search path that exists, which
	// mostly is public.
	Schema string `yaml:"schema"`
	// TablePrefix begins the name of every table. Default: leat_.
	TablePrefix string `yaml:"table_prefix"`
	// TLS has the link encrypted and the server's certificate checked, also as {}.
	TLS *TLS `yaml:"tls"`
	// PoolSize is how many connections this process opens at most; on
	// PostgreSQL it has one more, to listen. Default: 10.
	PoolSize int `yaml:"pool_size" min:"2" max:"1000"`
	// ConnectTimeout bounds one try to connect. Default: 5s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// StatementTimeout bounds a statement, and how long a connection may be
	// silent in the midst of one. Default: 30s.
	StatementTimeout time.Duration `yaml:"statement_timeout"`
	// ApplicationName is what PostgreSQL lists the connections by. Default: leat.
	ApplicationName string `yaml:"application_name"`
	// Pooler is `transaction` where a pooler such as PgBouncer gives each
	// transaction another connection: then nothing is prepared or set on a
	// connection, nor listened for.
	Pooler string `yaml:"pooler" enum:"transaction"`
}

// TLS says how a server's certificate is checked, and what is shown to it. Files
// are PEM; the process's working directory is where relative ones start.
type TLS struct {
	// CA is the file of the authorities to trust. Default: those of the system.
	CA string `yaml:"ca"`
	// Cert is the file of the certificate to show. Default: none is shown.
	Cert string `yaml:"cert"`
	// Key is the file of its key.
	Key string `yaml:"key"`
	// ServerName is what the certificate must be for. Default: the host.
	ServerName string `yaml:"server_name"`
	// Insecure takes any certificate: whoever is in between can read and write.
	Insecure bool `yaml:"insecure"`
}

const (
	defaultPool      = 10
	defaultConnect   = 5 * time.Second
	defaultStatement = 30 * time.Second
	poolerMode       = "transaction"
)

// String names the server and the database, without the password.
func (s Server) String() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "server"
	}
	user := s.Username
	if user == "" {
		user = u.User.Username()
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if user != "" {
		shown.User = url.User(user)
	}
	if s.Database != "" {
		shown.Path = "/" + s.Database
	}
	var query []string
	for _, o := range []struct{ name, value string }{{"schema", s.Schema}, {"table_prefix", s.TablePrefix}} {
		if o.value == "" {
			o.value = u.Query().Get(o.name)
		}
		if o.value != "" && o.value != prefix {
			query = append(query, o.name+"="+o.value)
		}
	}
	shown.RawQuery = strings.Join(query, "&")
	return shown.String()
}

// GoString is that of String: a password is in no output.
func (s Server) GoString() string { return s.String() }

var (
	legalSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	legalPrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,29}$`)
)

// complete takes what is ours out of the URL, which it gives back, and fills in
// the defaults. Its errors are about the options alone.
func (s *Server) complete(d Dialect) (*url.URL, error) {
	schemes := map[Dialect][]string{Postgres: {"postgres", "postgresql"}, MySQL: {"mysql", "mariadb"}}[d]
	if s.URL == "" {
		return nil, fmt.Errorf("no server is named: write url: %s://HOST/DATABASE", schemes[0])
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, unreadable(s.URL, schemes[0])
	}
	if u.Scheme != schemes[0] && u.Scheme != schemes[1] {
		return nil, fmt.Errorf("the URL does not begin with %s://", schemes[0])
	}
	if err := s.fromQuery(u); err != nil {
		return nil, err
	}
	if s.TablePrefix == "" {
		s.TablePrefix = prefix
	}
	if s.Database == "" {
		s.Database = strings.TrimPrefix(u.Path, "/")
	}
	if s.PoolSize == 0 {
		s.PoolSize = defaultPool
	}
	if s.ConnectTimeout == 0 {
		s.ConnectTimeout = defaultConnect
	}
	if s.StatementTimeout == 0 {
		s.StatementTimeout = defaultStatement
	}
	if s.ApplicationName == "" {
		s.ApplicationName = "leat"
	}
	return u, s.check(d, u)
}

// goAddress is the host in a DSN of Go's MySQL driver.
var goAddress = regexp.MustCompile(`@(?:tcp|tcp4|tcp6)\(([\w.:\[\]-]*)\)(/\w*)?[^@]*$`)

// unreadable says what is wrong with a URL, without the parser's own words, which may show a password.
func unreadable(text, scheme string) error {
	if m := goAddress.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("the URL has tcp(…) around its host, as DSNs of Go's driver have: write %s://USER@%s%s", scheme, m[1], m[2])
	}
	_, rest, _ := strings.Cut(text, "://")
	if login := rest[:max(0, strings.LastIndexByte(rest, '@'))]; !strings.Contains(login, ":") {
		return fmt.Errorf("the URL cannot be read: write %s://USER@HOST:PORT/DATABASE", scheme)
	}
	return errors.New("the URL cannot be read: a password with /, ?, # or % in it goes into the key password")
}

func (s *Server) check(d Dialect, u *url.URL) error {
	switch {
	case u.Host == "" && !u.Query().Has("host"): // libpq's way to name a socket
		return errors.New("the URL names no host: write " + u.Scheme + "://USER@HOST/DATABASE")
	case s.Database == "":
		return errors.New("no database is named: write " + u.Scheme + "://USER@HOST/DATABASE, or the key database")
	case s.PoolSize < 2:
		return fmt.Errorf("pool_size is %d: want at least 2", s.PoolSize)
	case s.ConnectTimeout < 0 || s.StatementTimeout < 0:
		return errors.New("connect_timeout and statement_timeout: want more than 0")
	case s.Pooler != "" && s.Pooler != poolerMode:
		return fmt.Errorf("pooler is %q: say %s, or leave it out", s.Pooler, poolerMode)
	case s.Pooler != "" && d != Postgres:
		return errors.New("pooler is for PostgreSQL alone")
	}
	return checkNames(d, s.Schema, s.TablePrefix)
}

// checkNames refuses what statements would need quotes for.
func checkNames(d Dialect, schema, tablePrefix string) error {
	switch {
	case schema != "" && d != Postgres:
		return errors.New("schema is for PostgreSQL alone: here it is the database that has the tables")
	case schema != "" && !legalSchema.MatchString(schema):
		return fmt.Errorf("schema %q: small letters, digits and _ are legal, at most 63, and no digit first", schema)
	case !legalPrefix.MatchString(tablePrefix):
		return fmt.Errorf("table_prefix %q: small letters, digits and _ are legal, at most 30, and no digit first", tablePrefix)
	}
	return nil
}

// fromQuery fills fields that are not set from the URL's query, and takes them
// out of it.
func (s *Server) fromQuery(u *url.URL) error {
	q := u.Query()
	var errs []error
	for name, field := range map[string]any{
		"schema": &s.Schema, "table_prefix": &s.TablePrefix, "pool_size": &s.PoolSize,
		"connect_timeout": &s.ConnectTimeout, "statement_timeout": &s.StatementTimeout,
		"application_name": &s.ApplicationName, "pooler": &s.Pooler,
	} {
		if !q.Has(name) {
			continue
		}
		var err error
		text := q.Get(name)
		switch field := field.(type) {
		case *string:
			if *field == "" {
				*field = text
			}
		case *int:
			if *field == 0 {
				*field, err = strconv.Atoi(text)
			}
		case *time.Duration:
			if *field == 0 {
				*field, err = duration(text)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: not a number, or a time such as 5s", name, text))
		}
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	return errors.Join(errs...)
}

// duration takes seconds too, as libpq does for connect_timeout.
func duration(text string) (time.Duration, error) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	return time.ParseDuration(text)
}

// config reads the files. host is the server's.
func (t *TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Insecure, MinVersion: tls.VersionTLS12} //nolint:gosec // as the user asks for
	if c.ServerName == "" {
		c.ServerName = host
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s has no PEM certificate", t.CA)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, errors.New("tls: cert and key go together")
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// withPort adds the port that a host does not name.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
