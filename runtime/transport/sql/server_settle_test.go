package sql_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// M3: a settle that loses in a deadlock is done again, and seen to be.
func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			if kind == "postgres" { // whoever looks for a deadlock when there is one ends it
				w.do(t, "ALTER ROLE $ SET deadlock_timeout = '5s'")
			}
			tr := w.open(t, func(o *sql.ServerOptions) { o.Lease = time.Minute })
			c, p := consume(t, tr), produce(t, tr)
			publish(t, p, "m", 5)
			ds := receive(t, c, 5)
			// Another program locks a message, has more to lose than a settle, and
			// then wants the lease that the settle has locked before.
			tx, err := w.raw.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			exec := func(query string) {
				_, err := tx.ExecContext(t.Context(), query)
				require.NoError(t, err, query)
			}
			if kind == "postgres" {
				exec("SET LOCAL deadlock_timeout = '1min'")
			}
			_, err = w.raw.ExecContext(t.Context(), "CREATE TABLE weight (n BIGINT PRIMARY KEY)")
			require.NoError(t, err)
			for n := range 40 {
				exec(fmt.Sprintf("INSERT INTO weight VALUES (%d)", n))
			}
			exec(fmt.Sprintf("UPDATE leat_messages SET part = part WHERE id = %d", ds[0].Offset))
			settled := make(chan error, 1)
			go func() {
				settled <- c.Settle(t.Context(), []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}})
			}()
			w.waits(t)
			exec(fmt.Sprintf("UPDATE leat_partitions SET owner = owner WHERE part = %d", ds[0].Partition))
			require.NoError(t, tx.Commit())
			require.NoError(t, <-settled)
			require.Positive(t, sql.Retries(c))
			settle(t, c, transport.Ack, ds[1:]...)
			quiet(t, c, 200*time.Millisecond)
			w.eventuallyEmpty(t, "leat_messages")
		})
	}
}

// waits returns when a statement of the world's user waits for a lock.
func (w *world) waits(t *testing.T) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE usename = '" + w.name + "' AND wait_event_type = 'Lock'"
	if w.kind == "mysql" {
		query = "SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id WHERE x.trx_state = 'LOCK WAIT' AND p.user = '" + w.name + "'"
	}
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, w.admin.QueryRowContext(t.Context(), query).Scan(&n))
		return n > 0
	}, waitFor, 200*time.Millisecond) // InnoDB shows old news to who asks within 100ms of the last time
}

// M3: one that waits for a lock in vain (1205) is done again too.
func TestLockWaitIsRetried(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes as long as MariaDB waits for a lock")
	}
	w := newWorld(t, "mysql", brokertest.URL(t, "mariadb"))
	tr := w.open(t, func(o *sql.ServerOptions) { o.Lease = time.Minute }) // which the settle keeps from being renewed
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 1)
	ds := receive(t, c, 1)
	tx, err := w.raw.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE leat_messages SET part = part WHERE id = %d", ds[0].Offset))
	require.NoError(t, err)
	settled := make(chan error, 1)
	go func() {
		settled <- c.Settle(t.Context(), []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}})
	}()
	require.Eventually(t, func() bool { return sql.Retries(c) > 0 }, waitFor, tickFor)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-settled)
	w.eventuallyEmpty(t, "leat_messages")
}

// C40, P8: transactions that stay open elsewhere hold up nothing: one that
// writes, one with an old snapshot, and on PostgreSQL one in another database.
func TestOpenTransactionsElsewhere(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			w.declare(t, groupName)
			hold := func(serverURL string, queries ...string) {
				db := connectTo(t, w.kind, serverURL)
				tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
				require.NoError(t, err)
				for _, query := range queries {
					_, err := tx.ExecContext(t.Context(), query)
					require.NoError(t, err, query)
				}
				t.Cleanup(func() {
					require.NoError(t, tx.Rollback())
					require.NoError(t, db.Close())
				})
			}
			if w.kind == "postgres" {
				u, err := url.Parse(w.server)
				require.NoError(t, err)
				u.Path = "/postgres"
				hold(u.String(), "SELECT pg_current_xact_id()")
				hold(w.own(w.server), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT pg_current_xact_id(), (SELECT count(*) FROM leat_messages)")
			} else {
				hold(w.own(w.server), "SELECT count(*) FROM leat_messages")
			}
			hold(w.own(w.server), `INSERT INTO leat_messages (topic_id, part) SELECT id, 0 FROM leat_topics`)
			c, p := consume(t, w.open(t)), produce(t, w.open(t))
			for range 20 {
				publish(t, p, "m", 50)
				settle(t, c, transport.Ack, receive(t, c, 50)...)
			}
			quiet(t, c, 100*time.Millisecond)
			late := consume(t, w.open(t), func(c *transport.ConsumerConfig) { c.Group = "late" })
			publish(t, p, "n", 5)
			settle(t, late, transport.Ack, receive(t, late, 5)...)
		})
	}
}

// Publishing and consuming at full load together, over many topics, with
// payloads that are stored apart from their rows: nothing is lost, nothing
// comes twice, and nothing is left.
func TestFullLoad(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			topics := make([]string, 12)
			for i := range topics {
				topics[i] = fmt.Sprint("topic", i)
			}
			var takers []*taker
			for i := range 2 {
				tr := w.open(t, func(o *sql.ServerOptions) { o.PoolSize = 6 + i })
				takers = append(takers, take(t, consume(t, tr, func(c *transport.ConsumerConfig) { c.Topics = topics })))
			}
			publishers, each := 8, 150
			if testing.Short() {
				each = 30
			}
			var mu sync.Mutex
			var sent []string
			body := strings.Repeat("0123456789abcdef", 300)
			var wg sync.WaitGroup
			p := produce(t, w.open(t))
			for n := range publishers {
				wg.Go(func() {
					for i := range each {
						var msgs []*message.Message
						for k := range 1 + i%5 {
							msgs = append(msgs, msg(fmt.Sprintf("%d-%d-%d", n, i, k), fmt.Sprint("k", k), body))
						}
						if err := p.Publish(t.Context(), topics[(n+i)%len(topics)], msgs...); err != nil {
							t.Error(err)
						}
						mu.Lock()
						for _, m := range msgs {
							sent = append(sent, m.UUID)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for _, id := range sent {
				require.Eventually(t, func() bool { return takers[0].has(id) || takers[1].has(id) }, waitFor, tickFor, id)
			}
			w.eventuallyEmpty(t, "leat_deliveries", "leat_messages")
			total := 0
			for _, k := range takers {
				k.mu.Lock()
				for _, n := range k.seen {
					total += n
				}
				k.mu.Unlock()
			}
			require.Equal(t, len(sent), total)
		})
	}
}

func (k *taker) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen[id] > 0
}

// M6: connections that the server ends for want of use are no trouble.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for kind, name := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var o transporttest.Options
			if kind == "postgres" {
				o = serverConformance(kind, brokertest.URL(t, name), nil)
			} else {
				own := brokertest.Start(t, name) // for all of whose users the limit is
				o = serverConformance(kind, own.URL(name), own)
				db := connectTo(t, kind, own.URL(name))
				_, err := db.ExecContext(t.Context(), "SET GLOBAL wait_timeout = 1")
				require.NoError(t, err)
				require.NoError(t, db.Close())
			}
			open := o.Open
			o.Open = func(tb transporttest.TB) transporttest.Broker {
				b := open(tb)
				b.Idle = time.Second
				return b
			}
			if kind == "postgres" {
				o.Open = idlePostgres(brokertest.URL(t, name))
			}
			for _, res := range transporttest.Check(t.Context(), o, "M6_idle") {
				require.Empty(t, res.Skip, res.Case)
				require.Empty(t, res.Failures, res.Case)
			}
		})
	}
}

// idlePostgres has a user whose connections end when they are not used.
func idlePostgres(serverURL string) func(transporttest.TB) transporttest.Broker {
	return func(tb transporttest.TB) transporttest.Broker {
		w := newWorld(tb, "postgres", serverURL)
		w.do(tb, "ALTER ROLE $ SET idle_session_timeout = '1s'")
		return transporttest.Broker{
			Transport: func(tb transporttest.TB) transport.Transport { return w.transport(tb) },
			Idle:      time.Second,
		}
	}
}

// Groups are listed and dropped, publishers learn of it, and what nobody reads
// any more goes.
func TestGroupsOfAServer(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			tr := w.open(t)
			require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare,
				transport.Declaration{Topic: topicName, Group: groupName}, transport.Declaration{Topic: topicName, Group: "other"}))
			p := produce(t, tr)
			publish(t, p, "m", 30)
			gs, err := tr.Groups(t.Context())
			require.NoError(t, err)
			require.Len(t, gs, 2)
			require.EqualValues(t, 30, gs[0].Depth.Ready)
			c := consume(t, w.open(t))
			var used *transport.GroupInUseError
			require.ErrorAs(t, tr.DropGroup(t.Context(), topicName, groupName), &used)
			require.NoError(t, tr.DropGroup(t.Context(), topicName, "other"))
			require.ErrorIs(t, tr.DropGroup(t.Context(), topicName, "other"), transport.ErrNoGroup)
			publish(t, p, "n", 10)
			require.Equal(t, 40, w.count(t, "leat_deliveries"), "only those of the group that is left")
			settle(t, c, transport.Ack, receive(t, c, 40)...)
			w.eventuallyEmpty(t, "leat_deliveries", "leat_messages")
		})
	}
}

// What no group reads goes when its topic's retention is over; dead letters stay.
func TestRetentionOfAServer(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			tr := w.open(t, func(o *sql.ServerOptions) { o.Retention = time.Hour })
			require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare,
				transport.Declaration{Topic: topicName}, transport.Declaration{Topic: "dead", DeadLetter: true}, transport.Declaration{Topic: "read", Group: groupName}))
			p := produce(t, tr)
			for _, name := range []string{topicName, "dead", "read"} {
				require.NoError(t, p.Publish(t.Context(), name, msg("old "+name, "k", "x")))
			}
			_, err := w.raw.ExecContext(t.Context(), "UPDATE leat_messages SET published_at = published_at - 7200000000")
			require.NoError(t, err)
			require.NoError(t, p.Publish(t.Context(), topicName, msg("new", "k", "x")))
			require.NoError(t, sql.Sweep(t.Context(), tr))
			rows, err := w.raw.QueryContext(t.Context(), "SELECT uuid FROM leat_messages ORDER BY id")
			require.NoError(t, err)
			defer rows.Close()
			var left []string
			for rows.Next() {
				var id []byte
				require.NoError(t, rows.Scan(&id))
				left = append(left, string(id))
			}
			require.NoError(t, rows.Err())
			require.Equal(t, []string{"old dead", "old read", "new"}, left)
		})
	}
}

// No transaction is open while handlers run, so that nothing is held up by a
// slow one.
func TestNoTransactionWhileHandling(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			tr := w.open(t, func(o *sql.ServerOptions) { o.Lease = time.Minute }) // its keeper is at rest
			c, p := consume(t, tr), produce(t, tr)
			publish(t, p, "m", 10)
			ds := receive(t, c, 10)
			query := "SELECT count(*) FROM pg_stat_activity WHERE usename = '" + w.name + "' AND state LIKE 'idle in transaction%'"
			if w.kind == "mysql" {
				query = "SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id WHERE p.user = '" + w.name + "'"
			}
			require.Eventually(t, func() bool {
				var n int
				require.NoError(t, w.admin.QueryRowContext(context.WithoutCancel(t.Context()), query).Scan(&n))
				return n == 0
			}, waitFor, tickFor)
			settle(t, c, transport.Ack, ds...)
		})
	}
}
