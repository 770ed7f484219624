package sql_test

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// userTx is a transaction of somebody's own.
type userTx interface {
	publish(t *testing.T, msgs ...*message.Message) error
	commit(t *testing.T)
	rollback(t *testing.T)
}

type stdTx struct{ *stdsql.Tx }

func (tx stdTx) publish(t *testing.T, msgs ...*message.Message) error {
	t.Helper()
	return sql.Publish(t.Context(), tx.Tx, topicName, msgs...)
}
func (tx stdTx) commit(t *testing.T)   { t.Helper(); require.NoError(t, tx.Commit()) }
func (tx stdTx) rollback(t *testing.T) { t.Helper(); require.NoError(t, tx.Rollback()) }

type pgxTx struct{ pgx.Tx }

func (tx pgxTx) publish(t *testing.T, msgs ...*message.Message) error {
	t.Helper()
	return sql.Publish(t.Context(), tx.Tx, topicName, msgs...)
}
func (tx pgxTx) commit(t *testing.T)   { t.Helper(); require.NoError(t, tx.Commit(t.Context())) }
func (tx pgxTx) rollback(t *testing.T) { t.Helper(); require.NoError(t, tx.Rollback(t.Context())) }

// beginnings are the ways to a transaction in a world.
func (w *world) beginnings(t *testing.T) map[string]func() userTx {
	t.Helper()
	begin := func(level stdsql.IsolationLevel) func() userTx {
		return func() userTx {
			tx, err := w.raw.BeginTx(t.Context(), &stdsql.TxOptions{Isolation: level})
			require.NoError(t, err)
			return stdTx{tx}
		}
	}
	all := map[string]func() userTx{"default": begin(stdsql.LevelDefault), "repeatable read": begin(stdsql.LevelRepeatableRead), "read committed": begin(stdsql.LevelReadCommitted)}
	if w.kind == "postgres" {
		conn, err := pgx.Connect(t.Context(), w.own(w.server))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
		all["pgx"] = func() userTx {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			return pgxTx{tx}
		}
	}
	return all
}

// The messages are there if and only if the transaction commits.
func TestPublishInYourTransaction(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			c := consume(t, w.open(t))
			for name, begin := range w.beginnings(t) {
				tx := begin()
				require.NoError(t, tx.publish(t, msg("undone", "k", "x")), name)
				tx.rollback(t)

				tx = begin()
				var want []string
				var msgs []*message.Message
				for i := range 250 {
					want = append(want, fmt.Sprint(name, i))
					msgs = append(msgs, msg(want[i], "k", "x"))
				}
				require.NoError(t, tx.publish(t, msgs...), name)
				quiet(t, c, 100*time.Millisecond)
				tx.commit(t)
				var came []string
				ds := receive(t, c, 250)
				for _, d := range ds {
					came = append(came, d.ID)
				}
				require.Equal(t, want, came, name)
				settle(t, c, transport.Ack, ds...)
			}
			quiet(t, c, 100*time.Millisecond)
			require.Zero(t, w.count(t, "leat_messages"))
		})
	}
}

// What is more than one packet goes in several statements, also where the
// driver writes values into their text.
func TestPublishInYourTransactionMuch(t *testing.T) {
	t.Parallel()
	w := worldOn(t, "mysql")
	c := consume(t, w.open(t))
	u, err := url.Parse(w.own(w.server))
	require.NoError(t, err)
	cfg := mysqldriver.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName, cfg.InterpolateParams = u.User.Username(), "tcp", u.Host, u.Path[1:], true
	db, err := stdsql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	defer db.Close()
	var packet int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@max_allowed_packet").Scan(&packet))
	body := strings.Repeat("x", packet/50)
	var msgs []*message.Message
	for i := range 100 {
		msgs = append(msgs, msg(fmt.Sprint(i), "k", body))
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, sql.Publish(t.Context(), tx, topicName, msgs...))
	require.NoError(t, tx.Commit())
	for left := len(msgs); left > 0; {
		ds := receive(t, c, 1)
		settle(t, c, transport.Ack, ds...)
		left -= len(ds)
	}
}

func TestPublishInYourTransaction_sqlite(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := consume(t, b.open())
	db := b.raw()
	for _, commit := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, sql.Publish(t.Context(), tx, topicName, msg("m", "k", "x"), msg("n", "k", "\x00\xff")))
		quiet(t, c, 50*time.Millisecond)
		if !commit {
			require.NoError(t, tx.Rollback())
			continue
		}
		require.NoError(t, tx.Commit())
		require.Equal(t, map[string]int{"m": 1, "n": 1}, ids(receive(t, c, 2)))
	}
}

// Another writer is waited for, also by a transaction that began without a lock.
func TestPublishInYourTransactionWaits_sqlite(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := consume(t, b.open())
	other, err := b.raw().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), "UPDATE leat_topics SET name = name")
	require.NoError(t, err)
	release := time.AfterFunc(100*time.Millisecond, func() { _ = other.Rollback() })
	defer release.Stop()
	tx, err := b.raw().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, sql.Publish(t.Context(), tx, topicName, msg("m", "k", "x")))
	require.NoError(t, tx.Commit())
	require.Equal(t, map[string]int{"m": 1}, ids(receive(t, c, 1)))
}

func TestPublishInYourTransactionRefuses(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, sql.Publish(t.Context(), "no", topicName, msg("m", "", "")), "string is neither")
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			w.declare(t)
			for name, begin := range w.beginnings(t) {
				tx := begin()
				switch tx := tx.(type) {
				case stdTx:
					require.ErrorContains(t, sql.Publish(t.Context(), tx.Tx, "other", msg("m", "", "")), `topic "other" does not exist`, name)
					require.ErrorContains(t, sql.Publish(t.Context(), tx.Tx, "no good", msg("m", "", "")), "legal", name)
				case pgxTx:
					require.ErrorContains(t, sql.Publish(t.Context(), tx.Tx, "other", msg("m", "", "")), `topic "other" does not exist`, name)
				}
				require.NoError(t, tx.publish(t, msg("m", "", "")), "the transaction goes on")
				tx.rollback(t)
			}
		})
	}
}

func (w *world) declare(t *testing.T, groups ...string) {
	t.Helper()
	ds := []transport.Declaration{{Topic: topicName}}
	for _, g := range groups {
		ds = append(ds, transport.Declaration{Topic: topicName, Group: g})
	}
	require.NoError(t, w.open(t).Declare(t.Context(), transport.TopologyDeclare, ds...))
}

// What commits wakes readers of other processes at once, where the database can.
func TestYourTransactionWakes(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			if w.kind == "mysql" {
				t.Skip("MariaDB has no notifications")
			}
			c := consume(t, w.open(t, func(o *sql.ServerOptions) { o.Poll = time.Hour }))
			for name, begin := range w.beginnings(t) {
				quiet(t, c, 300*time.Millisecond) // by now it polls seldom
				tx := begin()
				require.NoError(t, tx.publish(t, msg(name, "k", "x")))
				tx.commit(t)
				ds := receive(t, c, 1)
				require.Equal(t, name, ds[0].ID)
				settle(t, c, transport.Ack, ds...)
			}
		})
	}
}

// A transaction that sees an old state of the database either reaches a group
// that came since, or fails.
func TestOldSnapshotReachesNewGroup(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			w.declare(t, "first")
			for name, begin := range w.beginnings(t) {
				tx := begin()
				require.NoError(t, tx.publish(t, msg("before "+name, "k", "x")))
				other := begin
				if name == "pgx" { // has one connection
					other = w.beginnings(t)["pgx"]
				}
				stale := other()
				look(t, stale)
				group := fmt.Sprint("group", len(name))
				c := consume(t, w.open(t), func(c *transport.ConsumerConfig) { c.Group, c.Start = group, transport.StartLatest })
				tx.rollback(t)
				if err := stale.publish(t, msg(name, "k", "x")); err != nil {
					t.Logf("%s: %v", name, err)
					stale.rollback(t)
					continue
				}
				stale.commit(t)
				require.Equal(t, map[string]int{name: 1}, ids(receive(t, c, 1)), name)
			}
		})
	}
}

// look has a transaction take its snapshot.
func look(t *testing.T, tx userTx) {
	t.Helper()
	var n int
	switch tx := tx.(type) {
	case stdTx:
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_groups").Scan(&n))
	case pgxTx:
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM leat_groups").Scan(&n))
	}
}

// Groups that come under ten publishers, half of whom publish in transactions
// that stay open for a while, miss nothing, get nothing twice, and leave
// nothing behind when all have acked.
func TestGroupsComeUnderPublishers(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			w.declare(t)
			stopping := make(chan struct{})
			var mu sync.Mutex
			var sent []string
			var publishers sync.WaitGroup
			p := produce(t, w.open(t))
			for n := range 10 {
				publishers.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stopping:
							return
						default:
						}
						id := fmt.Sprintf("%d-%d", n, i)
						if n%2 == 0 {
							if err := p.Publish(t.Context(), topicName, msg(id, id, "x")); err != nil {
								t.Error(err)
							}
						} else if err := w.slowly(t, time.Duration(i*37%180)*time.Millisecond, msg(id, id, "x")); err != nil {
							t.Error(err)
						}
						mu.Lock()
						sent = append(sent, id)
						mu.Unlock()
					}
				})
			}
			var takers []*taker
			for g := range 4 {
				tr := w.open(t, func(o *sql.ServerOptions) { o.PoolSize = 4 + g })
				takers = append(takers, take(t, consume(t, tr, func(c *transport.ConsumerConfig) { c.Group = fmt.Sprint("group", g) })))
			}
			close(stopping)
			publishers.Wait()
			// The first group has had all; what the others came too late for is what
			// it had settled by then.
			takers[0].await(t, sent...)
			for _, k := range takers {
				require.Empty(t, k.twice())
			}
			after := make([]string, 50)
			for i := range after {
				after[i] = fmt.Sprint("after-", i)
				require.NoError(t, p.Publish(t.Context(), topicName, msg(after[i], after[i], "x")))
			}
			for _, k := range takers {
				k.await(t, after...)
			}
			w.eventuallyEmpty(t, "leat_deliveries", "leat_messages")
		})
	}
}

// slowly publishes in a transaction that stays open.
func (w *world) slowly(t *testing.T, hold time.Duration, m *message.Message) error {
	t.Helper()
	tx, err := w.raw.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	if err := sql.Publish(t.Context(), tx, topicName, m); err != nil {
		_ = tx.Rollback()
		return err
	}
	<-time.After(hold)
	return tx.Commit()
}

// eventuallyEmpty waits until nothing is left in tables.
func (w *world) eventuallyEmpty(t *testing.T, tables ...string) {
	t.Helper()
	for _, table := range tables {
		require.Eventually(t, func() bool { return w.count(t, table) == 0 }, waitFor, 20*time.Millisecond, "%s: %d rows", table, w.count(t, table))
	}
}
