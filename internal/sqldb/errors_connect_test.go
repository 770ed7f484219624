package sqldb_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	o := sqldbtest.New(t, sqldb.MySQL)
	o.Server.TLS = &sqldb.TLS{}
	var variable, have string
	err := sqldbtest.Admin(t, o).QueryRowContext(t.Context(), "SHOW GLOBAL VARIABLES LIKE 'have_ssl'").Scan(&variable, &have)
	if err == nil && have == "DISABLED" { // MariaDB before 11.4
		refuses(t, o, "has no TLS")
		return
	}
	refuses(t, o, "certificate that is not trusted", "tls.ca")
	o.Server.TLS.Insecure = true
	db := sqldbtest.Open(t, o)
	var name, cipher string
	require.NoError(t, db.QueryRow(t.Context(), nil, "SHOW STATUS LIKE 'Ssl_cipher'", nil, &name, &cipher))
	require.NotEmpty(t, cipher)
}

func TestServerWithoutTLS(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		o := sqldbtest.New(t, sqldb.Postgres)
		var on bool
		require.NoError(t, sqldbtest.Admin(t, o).QueryRowContext(t.Context(), "SELECT current_setting('ssl')::boolean").Scan(&on))
		if on {
			t.Skip("this server has TLS")
		}
		o.Server.TLS = &sqldb.TLS{}
		refuses(t, o, "has no TLS")
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		refuses(t, sqldb.Options{Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql://root@" + greeter(t) + "/leat?tls=true"}}, "has no TLS")
	})
}

// greeter listens and says what a MariaDB without TLS says first. It gives its address.
func greeter(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	greeting := "\n" + "10.11.0-MariaDB\x00" + "\x01\x00\x00\x00" + "12345678\x00" +
		"\x00\x82" + "\x2d" + "\x02\x00" + "\x08\x00" + "\x15" + strings.Repeat("\x00", 10) + "123456789012\x00" + "mysql_native_password\x00"
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, string([]byte{byte(len(greeting)), 0, 0, 0})+greeting)
			_, _ = io.Copy(io.Discard, conn) // until the other side goes
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// What takes a connection and says nothing is given up after connect_timeout.
func TestServerSaysNothing(t *testing.T) {
	t.Parallel()
	for scheme, dialect := range map[string]sqldb.Dialect{"postgres": sqldb.Postgres, "mysql": sqldb.MySQL} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel takes connections
			require.NoError(t, err)
			defer listener.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err = sqldb.Open(ctx, sqldb.Options{Dialect: dialect, Server: sqldb.Server{
				URL: scheme + "://u@" + listener.Addr().String() + "/leat", ConnectTimeout: 100 * time.Millisecond,
			}})
			require.Error(t, err)
			require.NoError(t, ctx.Err(), "it waits for as long as it may")
			require.False(t, sqldb.Unusable(err), err)
			require.ErrorContains(t, err, listener.Addr().String())
			require.ErrorContains(t, err, "comes within connect_timeout: is that the port of a "+map[string]string{"postgres": "PostgreSQL?", "mysql": "MariaDB or MySQL?"}[scheme])
		})
	}
}

// Another service that is met at the port is asked about, whatever the driver
// makes of its words.
func TestPortOfAnotherService(t *testing.T) {
	t.Parallel()
	const greeting = "\x4a\x00\x00\x00\x0a10.11.0-MariaDB\x00"
	for name, tc := range map[string]struct {
		url   string
		first string // said before the client has said anything
		says  string // said to what it says, before the connection is closed
		hint  string
	}{
		"postgres to AMQP":            {url: "postgres://u@ADDR/leat?sslmode=disable", says: "AMQP\x03\x01\x00\x00"},
		"postgres to AMQP, maybe TLS": {url: "postgres://u@ADDR/leat", says: "AMQP\x03\x01\x00\x00"},
		"postgres to HTTP":            {url: "postgres://u@ADDR/leat?sslmode=disable", says: "HTTP/1.1 400 Bad Request\r\n\r\n"},
		"postgres to MariaDB":         {url: "postgres://u@ADDR/leat?sslmode=disable", first: greeting},
		"postgres to Kafka":           {url: "postgres://u@ADDR/leat?sslmode=disable"},
		"mysql to SSH":                {url: "mysql://u@ADDR/leat?connect_timeout=100ms", first: "SSH-2.0-OpenSSH_9.2\r\n", hint: "no word of a MariaDB or MySQL comes within connect_timeout: is that the port of a MariaDB or MySQL?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := answerer(t, tc.first, tc.says)
			dialect, hint := sqldb.Postgres, "does not answer as a PostgreSQL does: is that the port of a PostgreSQL?"
			if tc.hint != "" {
				dialect, hint = sqldb.MySQL, tc.hint
			}
			_, err := sqldb.Open(t.Context(), sqldb.Options{Dialect: dialect, Server: sqldb.Server{URL: strings.ReplaceAll(tc.url, "ADDR", addr)}})
			require.ErrorContains(t, err, addr)
			require.ErrorContains(t, err, hint)
			require.False(t, sqldb.Unusable(err), "what should be there may come")
		})
	}
}

// answerer listens, says something first, and something to what it is told
// first; then it closes the connection.
func answerer(t *testing.T, first, says string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, first)
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = io.WriteString(conn, says)
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}
