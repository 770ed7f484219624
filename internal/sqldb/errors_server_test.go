package sqldb_test

import (
	"bytes"
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
)

// by gives what differs between the servers.
func by[T any](o sqldb.Options, postgres, mysql T) T {
	if o.Dialect == sqldb.Postgres {
		return postgres
	}
	return mysql
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		o = user(t, sqldbtest.Admin(t, o), o)
		o.Server.Password = "s3cret-and-wrong"
		if o.Dialect == sqldb.Postgres { // that lets in whoever it does not know better
			o.Server.Username = "leat"
		}
		refuses(t, o, "does not let user "+o.Server.Username+" in: check username and password")
	})
}

func TestMissingDatabase(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		o.Server.Database = "leat_none"
		refuses(t, o, "database leat_none does not exist on the server: create it")
	})
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		proxy := through(t, &o)
		proxy.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := sqldb.Open(ctx, o)
		require.ErrorContains(t, err, "database "+o.Name())
		require.False(t, sqldb.Unusable(err), "it may come back")
		proxy.Heal()
		sqldbtest.Open(t, o)
	})
}

// through has a link that fails on demand.
func through(t *testing.T, o *sqldb.Options) *brokertest.Proxy {
	t.Helper()
	u, err := url.Parse(o.Server.URL)
	require.NoError(t, err)
	proxy := brokertest.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	o.Server.URL = u.String()
	return proxy
}

func TestSchemaOfANewerProgram(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		admin := sqldbtest.Admin(t, o)
		// A newer program has added something: we go on beside it.
		run(t, admin, "INSERT INTO leat_schema (version_id, is_applied) VALUES (2, true)")
		run(t, admin, "ALTER TABLE leat_topics ADD COLUMN color INT")
		require.NoError(t, sqldbtest.Open(t, o).Close())
		pending, err := sqldb.Pending(t.Context(), o)
		require.NoError(t, err)
		require.Empty(t, pending)
		_, err = db.Writer.ExecContext(t.Context(), db.SQL("INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('t', 'u', 8, 1)"))
		require.NoError(t, err)
		// It has taken away what the second step has replaced.
		run(t, admin, "INSERT INTO leat_schema (version_id, is_applied) VALUES (2003, true)")
		refuses(t, o, "has schema version 2003, newer than the 1 this program knows: run a newer program")
		o.Verify = true
		refuses(t, o, "has schema version 2003")
		_, err = sqldb.Pending(t.Context(), o)
		require.ErrorContains(t, err, "newer than the 1")
	})
}

func TestDamagedSchema(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		admin := sqldbtest.Admin(t, o)
		complaints, err := sqldb.Check(t.Context(), o)
		require.NoError(t, err)
		require.Empty(t, complaints)
		run(t, admin, "DROP TABLE leat_deliveries")
		run(t, admin, "ALTER TABLE leat_messages DROP COLUMN headers")
		refuses(t, o, "is damaged", "restore it", "leat_deliveries", "headers")
		complaints, err = sqldb.Check(t.Context(), o)
		require.NoError(t, err)
		require.Len(t, complaints, 2)
		err = db.InTx(t.Context(), func(tx *sql.Tx) error {
			_, err := db.Exec(t.Context(), tx, "DELETE FROM leat_deliveries WHERE id = ?", 1)
			return err
		})
		require.ErrorContains(t, err, "is damaged")
		require.True(t, sqldb.Unusable(err))
	})
}

// sleeping on MySQL ends without an error where that is all there is to a statement.
func sleeping(o sqldb.Options) string {
	return by(o, "SELECT pg_sleep(30)", "SELECT 1 FROM leat_schema WHERE SLEEP(30)")
}

func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		o.Server.StatementTimeout = 300 * time.Millisecond
		db := sqldbtest.Open(t, o)
		err := db.InTx(t.Context(), func(tx *sql.Tx) error {
			_, err := db.Exec(t.Context(), tx, sleeping(o))
			return err
		})
		require.ErrorContains(t, err, "raise statement_timeout")
		require.False(t, sqldb.Unusable(err))
		ping(t, db)
	})
}

func ping(t *testing.T, db *sqldb.DB) {
	t.Helper()
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := db.Exec(t.Context(), tx, "DELETE FROM leat_dedup WHERE scope = ?", "none")
		return err
	}))
}

func TestConnectionIsKilled(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		admin := sqldbtest.Admin(t, o)
		err := db.InTx(t.Context(), func(tx *sql.Tx) error {
			var id string
			if err := tx.QueryRowContext(t.Context(), by(o, "SELECT pg_backend_pid()", "SELECT CONNECTION_ID()")).Scan(&id); err != nil {
				return err
			}
			if _, err := db.Exec(t.Context(), tx, "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('t', 'u', 8, 1)"); err != nil {
				return err
			}
			run(t, admin, by(o, "SELECT pg_terminate_backend("+id+")", "KILL CONNECTION "+id))
			_, err := db.Exec(t.Context(), tx, "DELETE FROM leat_topics")
			return err
		})
		require.ErrorContains(t, err, "database "+db.Name)
		require.False(t, sqldb.Unusable(err))
		var n int
		require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT count(*) FROM leat_topics", nil, &n))
		require.Zero(t, n)
		ping(t, db)
	})
}

// M6: what the server has ended while it was idle is nobody's error.
func TestIdleConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		admin := sqldbtest.Admin(t, o)
		for range 5 {
			var held []*sql.Tx
			for range 4 {
				tx, err := db.Writer.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				held = append(held, tx)
			}
			for _, tx := range held {
				require.NoError(t, tx.Rollback())
			}
			if o.Dialect == sqldb.Postgres {
				run(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
			} else {
				killAll(t, admin, o.Server.Database)
			}
			for range 6 {
				ping(t, db)
			}
		}
	})
}

// killAll kills all connections to a database but one's own.
func killAll(t *testing.T, admin *sql.DB, database string) {
	t.Helper()
	rows, err := admin.QueryContext(t.Context(), "SELECT concat('KILL CONNECTION ', id) FROM information_schema.processlist WHERE db = ? AND id <> connection_id()", database)
	require.NoError(t, err)
	defer rows.Close()
	var kills []string
	for rows.Next() {
		var kill string
		require.NoError(t, rows.Scan(&kill))
		kills = append(kills, kill)
	}
	require.NoError(t, rows.Err())
	for _, kill := range kills {
		_, _ = admin.ExecContext(t.Context(), kill) // it may be gone already
	}
}

func TestPoolIsExhausted(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		o.Server.PoolSize = 2
		db := sqldbtest.Open(t, o)
		for range 2 {
			tx, err := db.Writer.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback()) }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := db.InTx(ctx, func(*sql.Tx) error { return nil })
		require.ErrorContains(t, err, "all 2 are in use, so raise pool_size")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, sqldb.Unusable(err))
	})
}

func TestServerIsFull(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		sqldbtest.Open(t, o)
		admin := sqldbtest.Admin(t, o)
		small := user(t, admin, o)
		name := small.Server.Username
		run(t, admin, by(o, "ALTER ROLE "+name+" CONNECTION LIMIT 0", "ALTER USER "+name+" WITH MAX_CONNECTIONS_PER_HOUR 1"))
		for range 2 {
			_, err := sqldb.Open(t.Context(), small)
			if err != nil && sqldb.Unusable(err) {
				continue // MariaDB lets the first one in, to no right
			}
			require.ErrorContains(t, err, "no connection left: lower pool_size")
		}
	})
}

// What the database will not take is the fault of the value, and is not shown.
func TestValuesRejected(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		insert := func(instance any, payload []byte) error {
			return db.InTx(t.Context(), func(tx *sql.Tx) error {
				if _, err := db.Exec(t.Context(), tx, "INSERT INTO leat_members (topic_id, group_id, session, instance, lease_until) VALUES (1, 1, ?, ?, 1)", "s", instance); err != nil {
					return err
				}
				if payload == nil {
					return sql.ErrNoRows
				}
				_, err := db.Exec(t.Context(), tx, "INSERT INTO leat_messages (topic_id, part, payload) VALUES (1, 1, ?)", payload)
				return err
			})
		}
		rejected := func(err error, says string) {
			t.Helper()
			require.ErrorContains(t, err, says)
			require.True(t, sqldb.Rejected(err), err)
			require.False(t, sqldb.Unusable(err))
			require.NotContains(t, err.Error(), "seen")
		}
		rejected(insert("seen\xff\xfe", nil), "not UTF-8")
		if o.Dialect == sqldb.Postgres {
			rejected(insert("seen\x00", nil), "NUL")
		} else {
			require.ErrorIs(t, insert("a\x00b", nil), sql.ErrNoRows)
			var packet int
			require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT @@max_allowed_packet", nil, &packet))
			rejected(insert("i", bytes.Repeat([]byte("seen"), packet/4+1)), "raise max_allowed_packet")
		}
		require.NoError(t, insert("i", []byte{0, 0xff, 0}), "bytes are bytes")
	})
}

func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		tx, err := db.Writer.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		_, err = db.Exec(t.Context(), tx, "DELETE FROM leat_topics")
		require.NoError(t, tx.Rollback())
		err = db.Explain(err)
		require.ErrorContains(t, err, "takes no writes")
		require.False(t, sqldb.Unusable(err), "a replica may become the primary")
		if o.Dialect == sqldb.MySQL {
			return // there it is a setting of all databases
		}
		require.NoError(t, db.Close())
		run(t, sqldbtest.Admin(t, o), "ALTER DATABASE "+o.Server.Database+" SET default_transaction_read_only = on")
		_, err = sqldb.Open(t.Context(), o)
		require.ErrorContains(t, err, "takes no writes")
	})
}
