package sql_test

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	mysqldriver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// tb is what a world needs of a test.
type tb interface {
	Helper()
	Cleanup(fn func())
	Context() context.Context
	Errorf(format string, args ...any)
	FailNow()
}

// world is a schema of PostgreSQL, or a database of MariaDB, with a user that
// may do everything in it and nothing else.
type world struct {
	kind   string
	server string // URL of an administrator
	url    string // for workers, without user and password
	name   string // of the schema or database, of the user and its password
	admin  *stdsql.DB
	raw    *stdsql.DB // the administrator's, in the world
}

// servers are the kinds of servers, by name, with what scripts/brokers calls them.
func servers() map[string]string {
	return map[string]string{"postgres": "postgres", "mysql": "mariadb"}
}

// worldOn makes one on the shared server of a kind.
func worldOn(t *testing.T, kind string) *world {
	t.Helper()
	return newWorld(t, kind, brokertest.URL(t, servers()[kind]))
}

// newWorld makes one on a server.
func newWorld(t tb, kind, serverURL string) *world {
	t.Helper()
	w := &world{kind: kind, server: serverURL, name: fmt.Sprintf("t%016x", rand.Uint64())}
	u, err := url.Parse(serverURL)
	require.NoError(t, err)
	u.User = nil
	w.url = u.String()
	w.admin = connectTo(t, kind, serverURL)
	w.admin.SetMaxIdleConns(-1) // a server that was restarted has ended them
	for _, statement := range map[string][]string{
		"postgres": {"CREATE ROLE $ LOGIN PASSWORD '$'", "CREATE SCHEMA $ AUTHORIZATION $"},
		"mysql":    {"CREATE DATABASE $", "CREATE USER $ IDENTIFIED BY '$'", "GRANT ALL ON $.* TO $"},
	}[kind] {
		w.do(t, statement)
	}
	t.Cleanup(func() {
		for _, statement := range map[string][]string{
			"postgres": {"DROP SCHEMA $ CASCADE", "DROP OWNED BY $", "DROP ROLE $"},
			"mysql":    {"DROP DATABASE $", "DROP USER $"},
		}[kind] {
			w.do(t, statement)
		}
		_ = w.admin.Close() // as below
	})
	w.raw = connectTo(t, kind, w.own(serverURL))
	t.Cleanup(func() { _ = w.raw.Close() }) // the server may have ended its connections
	return w
}

// do runs a statement as the administrator; $ is the world's name.
func (w *world) do(t tb, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	_, err := w.admin.ExecContext(ctx, strings.ReplaceAll(statement, "$", w.name))
	require.NoError(t, err, statement)
}

// connections gives the ids of those of the world's user.
func (w *world) connections(t tb) []int64 {
	t.Helper()
	query := "SELECT pid FROM pg_stat_activity WHERE usename = '" + w.name + "'"
	if w.kind == "mysql" {
		query = "SELECT id FROM information_schema.processlist WHERE user = '" + w.name + "'"
	}
	rows, err := w.admin.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

// disconnect ends all connections of the world's user.
func (w *world) disconnect(t tb) {
	t.Helper()
	for _, id := range w.connections(t) {
		query := "SELECT pg_terminate_backend(%d)"
		if w.kind == "mysql" {
			query = "KILL %d"
		}
		_, _ = w.admin.ExecContext(t.Context(), fmt.Sprintf(query, id)) // it may have gone by itself
	}
}

// deny shuts the world's user out.
func (w *world) deny(t tb) (allow func()) {
	t.Helper()
	shut, open := "ALTER ROLE $ NOLOGIN", "ALTER ROLE $ LOGIN"
	if w.kind == "mysql" {
		shut, open = "ALTER USER $ ACCOUNT LOCK", "ALTER USER $ ACCOUNT UNLOCK"
	}
	w.do(t, shut)
	w.disconnect(t)
	return func() { w.do(t, open) }
}

// shiftable gives the world a clock that can be set.
func (w *world) shiftable(t tb) (jump func(tb, time.Duration)) {
	t.Helper()
	_, err := w.raw.ExecContext(t.Context(), "CREATE TABLE test_clock (shift BIGINT)")
	require.NoError(t, err)
	_, err = w.raw.ExecContext(t.Context(), "INSERT INTO test_clock VALUES (0)")
	require.NoError(t, err)
	if w.kind == "postgres" {
		w.do(t, "GRANT SELECT ON $.test_clock TO $")
	}
	return func(t tb, d time.Duration) {
		_, err := w.raw.ExecContext(t.Context(), fmt.Sprintf("UPDATE test_clock SET shift = shift + %d", d.Microseconds()))
		require.NoError(t, err)
	}
}

// own is a URL by which another program uses the world.
func (w *world) own(serverURL string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		panic(err)
	}
	if w.kind == "mysql" {
		u.Path = "/" + w.name
	} else {
		q := u.Query()
		q.Set("search_path", w.name)
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// connectTo opens a server as another program does.
func connectTo(t tb, kind, serverURL string) *stdsql.DB {
	t.Helper()
	driver, dsn := "pgx", serverURL
	if kind == "mysql" {
		u, err := url.Parse(serverURL)
		require.NoError(t, err)
		cfg := mysqldriver.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		cfg.Passwd, _ = u.User.Password()
		driver, dsn = "mysql", cfg.FormatDSN()
	}
	db, err := stdsql.Open(driver, dsn)
	require.NoError(t, err)
	return db
}

// options are those of a worker in the world.
func (w *world) options(change ...func(*sql.ServerOptions)) sql.ServerOptions {
	o := sql.ServerOptions{Server: sql.Server{URL: w.url, Username: w.name, Password: w.name}, Poll: 50 * time.Millisecond}
	if w.kind == "mysql" {
		o.Database = w.name
	} else {
		o.Schema = w.name
	}
	for _, fn := range change {
		fn(&o)
	}
	return o
}

func (w *world) transport(t tb, change ...func(*sql.ServerOptions)) *sql.Transport {
	t.Helper()
	open := sql.OpenPostgres
	if w.kind == "mysql" {
		open = sql.OpenMySQL
	}
	tr, err := open(w.options(change...))
	require.NoError(t, err)
	return tr
}

// open makes a transport, as another worker would; it is closed with the test.
func (w *world) open(t *testing.T, change ...func(*sql.ServerOptions)) *sql.Transport {
	t.Helper()
	tr := w.transport(t, change...)
	t.Cleanup(func() { require.NoError(t, tr.Close(context.WithoutCancel(t.Context()))) })
	return tr
}

func (w *world) count(t tb, table string) int {
	t.Helper()
	var n int
	require.NoError(t, w.raw.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// numbered writes ?, or $1 and so on.
func (w *world) numbered(query string) string {
	if w.kind == "mysql" {
		return strings.ReplaceAll(query, `"key"`, "`key`")
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprint("$", n), 1)
	}
	return query
}

// serverConformance presents a world for every case, behind a link.
func serverConformance(kind, serverURL string, own *brokertest.Brokers) transporttest.Options {
	const lease = 3 * time.Second
	name := servers()[kind]
	o := transporttest.Options{
		Open: func(tb transporttest.TB) transporttest.Broker {
			w := newWorld(tb, kind, serverURL)
			u, err := url.Parse(w.url)
			require.NoError(tb, err)
			link := brokertest.NewProxy(tb, u.Host)
			u.Host = link.Addr()
			jump := w.shiftable(tb)
			opened := 0
			b := transporttest.Broker{
				Transport: func(tb transporttest.TB) transport.Transport {
					opened++
					tr := w.transport(tb, func(o *sql.ServerOptions) {
						o.URL = u.String()
						o.Lease = lease
						o.PoolSize = 5 + opened // so that each has connections of its own, as another process has
						o.ConnectTimeout, o.StatementTimeout = 2*time.Second, 2*time.Second
					})
					sql.ShiftServerClock(tr, w.name+".test_clock")
					return tr
				},
				Kill:         func(_ transporttest.TB, c transport.Consumer, _ transport.ConsumerConfig) { sql.Kill(c) },
				Foreign:      w.foreign,
				PublishLater: w.publishLater,
				Link:         link,
				Disconnect:   func(tb transporttest.TB) { w.disconnect(tb) },
				Deny:         func(tb transporttest.TB) func() { return w.deny(tb) },
				Jump:         func(tb transporttest.TB, d time.Duration) { jump(tb, d) },
			}
			if kind == "mysql" {
				require.NoError(tb, w.raw.QueryRowContext(tb.Context(), "SELECT @@max_allowed_packet").Scan(&b.Oversize))
				b.Oversize++
			}
			if own != nil {
				b.Restart = func(transporttest.TB) { own.Restart(name) }
				b.Crash = func(transporttest.TB) { own.Kill(name); own.Up(name) }
				b.Freeze = func(transporttest.TB) func() { own.Pause(name); return func() { own.Resume(name) } }
			}
			return b
		},
		Takeover: lease + lease/2,
		Short:    true, // LEAT_SOAK has more
		Lacks: map[string]string{
			"Idle":     "TestIdleConnections has users and servers that end them",
			"Oversize": "it takes what fits into memory",
		},
	}
	if own == nil {
		for _, hook := range []string{"Restart", "Crash", "Freeze"} {
			o.Lacks[hook] = "others use the server too; TestConformance_own has one of its own"
		}
	}
	return o
}

func TestConformance_postgres(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, serverConformance("postgres", brokertest.URL(t, "postgres"), nil))
}

func TestConformance_mysql(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, serverConformance("mysql", brokertest.URL(t, "mariadb"), nil))
}

// TestConformance_own has servers that can be stopped, killed and frozen.
func TestConformance_own(t *testing.T) {
	t.Parallel()
	for kind, name := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			own := brokertest.Start(t, name)
			for _, res := range transporttest.Check(t.Context(), serverConformance(kind, own.URL(name), own), "I1_restart", "I2_crash", "I3_frozen") {
				require.Empty(t, res.Skip, res.Case)
				require.Empty(t, res.Failures, res.Case)
			}
		})
	}
}

// foreign is done by hand.
func (w *world) foreign(tb transporttest.TB, topic, _ string) int {
	tb.Helper()
	rows := [][5]any{
		{nil, nil, nil, nil, 1},
		{[]byte{}, []byte{}, []byte{}, []byte{}, 2},
		{[]byte("broken"), nil, []byte(`{"a": `), []byte("x"), 3},
		{[]byte("array"), nil, []byte("[1]"), []byte("x"), 4},
		{[]byte("cut"), nil, []byte{0, 5, 'a'}, []byte("x"), 5},
		{[]byte("badutf"), []byte{0xff}, []byte("{\"a\":\"\xff\"}"), []byte{0xff}, 6},
		{[]byte("typed"), []byte("7"), []byte(`{"n": 1.50, "b": true, "o": {"x": [1]}, "z": null, "n": 2}`), []byte("8"), 7},
	}
	for _, values := range rows {
		tx, err := w.raw.BeginTx(tb.Context(), nil)
		require.NoError(tb, err)
		insert := w.numbered(`INSERT INTO leat_messages (topic_id, part, uuid, "key", headers, payload, published_at) SELECT id, 3, ?, ?, ?, ?, ? FROM leat_topics WHERE name = ?`)
		if w.kind == "postgres" {
			insert = strings.NewReplacer("$1", "$1::bytea", "$2", "$2::bytea", "$3", "$3::bytea", "$4", "$4::bytea", "$5", "$5::bigint").Replace(insert)
		}
		_, err = tx.ExecContext(tb.Context(), insert, append(values[:], topic)...)
		require.NoError(tb, err)
		_, err = tx.ExecContext(tb.Context(), "INSERT INTO leat_deliveries (topic_id, group_id, part, id) SELECT m.topic_id, g.id, m.part, m.id"+
			" FROM leat_messages m JOIN leat_groups g ON g.topic_id = m.topic_id WHERE m.id = (SELECT max(id) FROM leat_messages)")
		require.NoError(tb, err)
		require.NoError(tb, tx.Commit())
	}
	return len(rows)
}

// publishLater publishes in a transaction that stays open.
func (w *world) publishLater(tb transporttest.TB, topic string, msgs ...*message.Message) (commit func()) {
	tb.Helper()
	tx, err := w.raw.BeginTx(context.WithoutCancel(tb.Context()), nil)
	require.NoError(tb, err)
	require.NoError(tb, sql.Publish(tb.Context(), tx, topic, msgs...))
	return func() { require.NoError(tb, tx.Commit()) }
}
