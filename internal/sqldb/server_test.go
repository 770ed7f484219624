package sqldb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
)

func TestServerOptionsRefused(t *testing.T) {
	t.Parallel()
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(noPEM, []byte("no certificate"), 0o600))
	const pg, my = "postgres://u:s3cret@h/d", "mysql://u:s3cret@h/d"
	for says, o := range map[string]sqldb.Options{
		"does not begin with postgres://":        {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: my}},
		"does not begin with mysql://":           {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: pg}},
		"the key password":                       {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql://u:s3cret%@h/d"}},
		"write mysql://USER@127.0.0.1:3306/leat": {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql://root@tcp(127.0.0.1:3306)/leat"}},
		"write mysql://USER@db:3306":             {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql://root:s3cret@tcp(db:3306)?parseTime=true"}},
		"write postgres://USER@HOST:PORT":        {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: "postgres://root@h:s3cret/leat"}},
		"names no host":                          {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql:///d"}},
		"no database is named":                   {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: "postgres://u:s3cret@h"}},
		"schema is for PostgreSQL alone":         {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: my + "?schema=a"}},
		`schema "A b"`:                           {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg, Schema: "A b"}},
		`table_prefix "a;--"`:                    {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg, TablePrefix: "a;--"}},
		"pool_size is 1":                         {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg + "?pool_size=1"}},
		"pool_size=many":                         {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg + "?pool_size=many"}},
		"want more than 0":                       {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg, ConnectTimeout: -1}},
		"pooler is \"session\"":                  {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg, Pooler: "session"}},
		"pooler is for PostgreSQL alone":         {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: my, Pooler: "transaction"}},
		"the URL takes no such charset:":         {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: my + "?charset=latin1"}},
		"tls.ca: open /none":                     {Dialect: sqldb.MySQL, Server: sqldb.Server{URL: my, TLS: &sqldb.TLS{CA: "/none"}}},
		"has no PEM certificate":                 {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg, TLS: &sqldb.TLS{CA: noPEM}}},
		"cert and key go together":               {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg, TLS: &sqldb.TLS{Cert: noPEM}}},
		`the URL cannot be used`:                 {Dialect: sqldb.Postgres, Server: sqldb.Server{URL: pg + "?sslmode=perhaps"}},
		`database dialect "oracle": want sqli`:   {Dialect: "oracle"},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			err := o.Validate()
			require.ErrorContains(t, err, says)
			require.NotContains(t, err.Error(), "s3cret")
			_, err = sqldb.Open(t.Context(), o)
			require.ErrorContains(t, err, says)
		})
	}
}

func TestServerShowsNoPassword(t *testing.T) {
	t.Parallel()
	s := sqldb.Server{URL: "postgres://u:s3cret@h:1/d?schema=s", Password: "s3cret", Username: "v", TablePrefix: "p_"}
	for _, verb := range []string{"%v", "%+v", "%s", "%q", "%#v"} {
		require.NotContains(t, fmt.Sprintf(verb, s), "s3cret")
		require.NotContains(t, fmt.Sprintf(verb, sqldb.Options{Server: s}), "s3cret")
	}
	require.Equal(t, "postgres://v@h:1/d?schema=s&table_prefix=p_", s.String())
	require.Equal(t, "mysql://u@h/other", sqldb.Options{Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql://u:s3cret@h/d", Database: "other"}}.Name())
}

func TestServerOptionsTaken(t *testing.T) {
	t.Parallel()
	for _, o := range []sqldb.Options{
		{Dialect: sqldb.Postgres, Server: sqldb.Server{URL: "postgresql://h1,h2:5433/d?target_session_attrs=read-write&pooler=transaction"}},
		{Dialect: sqldb.Postgres, Server: sqldb.Server{URL: "postgres://h", Database: "d", Username: "u/?#%", Password: "p/?#%@:"}},
		{Dialect: sqldb.Postgres, Server: sqldb.Server{URL: "postgres://h/d", TLS: &sqldb.TLS{ServerName: "n"}, StatementTimeout: time.Minute}},
		{Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mariadb://u@[::1]/d?tls=true&connect_timeout=3&statement_timeout=5s"}},
	} {
		require.NoError(t, o.Validate())
	}
}

// A value may be a secret that was put into the wrong place.
func TestUnknownParameterShowsNoValue(t *testing.T) {
	t.Parallel()
	o := sqldb.Options{Dialect: sqldb.MySQL, Server: sqldb.Server{URL: "mysql://db.internal/shop?pasword=sesame"}}
	err := o.Validate()
	require.ErrorContains(t, err, "pasword")
	require.NotContains(t, err.Error(), "sesame")
}

func TestTablesOfRefused(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"leat; DROP", ""}, {"", "a b"}, {"Shop", ""}, {"", "1_"}} {
		_, err := sqldb.TablesOf(sqldb.Postgres, names[0], names[1])
		require.ErrorContains(t, err, "are legal", names)
	}
	_, err := sqldb.TablesOf(sqldb.MySQL, "shop", "")
	require.ErrorContains(t, err, "schema is for PostgreSQL alone")
	tables, err := sqldb.TablesOf(sqldb.Postgres, "shop", "their_")
	require.NoError(t, err)
	require.Equal(t, "shop.their_topics", tables.Table("leat_topics"))
}
