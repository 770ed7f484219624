package watermill_test

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	leatsql "github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// hasty does as watermill-sqlite's Subscriber does on modernc's driver: it
// locks a row and offers it, gives the lock up if nobody takes it in time, and
// goes on to the next row; an ack of that moves the offset past both.
type hasty struct {
	rows []string
	lock time.Duration
	odd
}

func (h hasty) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for _, id := range h.rows {
			m := message.NewMessage(id, nil)
			select {
			case out <- m:
			case <-time.After(h.lock):
				continue
			case <-ctx.Done():
				return
			}
			select {
			case <-m.Acked():
			case <-ctx.Done():
				return
			}
		}
		<-ctx.Done()
	}()
	return out, nil
}

// A reader that pauses for longer than the lock of a row loses none, and keeps
// the order. Known bad (W2): whoever reads such a Subscriber's channel himself.
func TestPausedReader(t *testing.T) {
	t.Parallel()
	h := hasty{rows: []string{"1", "2", "3", "4", "5", "6", "7", "8"}, lock: time.Second}
	pause := func() { <-time.After(3*h.lock + h.lock/2) }
	for name, of := range map[string]struct {
		// reader gives what takes a message and acks it.
		reader func(t *testing.T) func() string
		want   []string
	}{
		"transport": {func(t *testing.T) func() string {
			t.Helper()
			c := open(t, watermill.Transport("hasty", h, h), "a")
			return func() string {
				d := receive(t, c)[0]
				settle(t, c, transport.Ack, d)
				return d.ID
			}
		}, h.rows},
		"stock": {func(t *testing.T) func() string {
			t.Helper()
			messages, err := h.Subscribe(t.Context(), "a")
			require.NoError(t, err)
			return func() string {
				m := <-messages
				m.Ack()
				return m.UUID
			}
		}, []string{"1", "2", "6", "7", "8"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				next := of.reader(t)
				got := []string{next(), next()}
				pause()
				for len(got) < len(of.want) {
					got = append(got, next())
				}
				require.Equal(t, of.want, got)
			})
		})
	}
}

// looks counts a reader's looks for rows that are old enough.
type looks struct{ atomic.Int64 }

// TraceQueryStart counts.
func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "pg_snapshot_xmin") {
		l.Add(1)
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (*looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// What a transaction has written in another database of the server holds up
// nothing of a topic. Known bad (W10): watermill-sql's default schema, and so
// the kind, whose tables are to stay its own.
func TestPostgresOpenTransaction(t *testing.T) {
	t.Parallel()
	server := brokertest.Start(t, "postgres") // others' topics would stand still with ours
	url := server.URL("postgres")
	server.Exec("postgres", "psql", "-c", "CREATE DATABASE elsewhere")
	for name, of := range map[string]struct { //nolint:paralleltest // each has the server to itself
		open  func(t *testing.T, db *sql.DB) transport.Transport
		stuck bool
	}{
		"leat": {func(t *testing.T, _ *sql.DB) transport.Transport {
			t.Helper()
			tr, err := leatsql.OpenPostgres(leatsql.ServerOptions{Server: leatsql.Server{URL: url}})
			require.NoError(t, err)
			return tr
		}, false},
		"kind": {func(t *testing.T, db *sql.DB) transport.Transport {
			t.Helper()
			tr, err := watermill.Postgres(watermill.SQLOptions{DB: db, PollInterval: 10 * time.Millisecond})
			require.NoError(t, err)
			return tr
		}, true},
		"stock": {func(t *testing.T, db *sql.DB) transport.Transport {
			t.Helper()
			schema, offsets := wmsql.DefaultPostgreSQLSchema{}, wmsql.DefaultPostgreSQLOffsetsAdapter{}
			sub, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
				ConsumerGroup: "g", PollInterval: 10 * time.Millisecond, SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true,
			}, wm.NopLogger{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, sub.Close()) })
			pub, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema}, wm.NopLogger{})
			require.NoError(t, err)
			return watermill.Transport("stock", sub, pub)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var n looks
			c, err := pgx.ParseConfig(url)
			require.NoError(t, err)
			elsewhere := c.Copy()
			elsewhere.Database = "elsewhere"
			c.Tracer = &n
			db, other := stdlib.OpenDB(*c), stdlib.OpenDB(*elsewhere)
			t.Cleanup(func() { require.NoError(t, other.Close()); require.NoError(t, db.Close()) })
			tr := of.open(t, db)
			t.Cleanup(func() { require.NoError(t, tr.Close(context.Background())) })
			w := &world{T: t, tr: tr, topic: "t" + unique(), group: "g"}
			reader, leave := w.join()
			w.pub, err = tr.OpenProducer(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, w.pub.Close(context.Background())) }()

			tx, err := other.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), "SELECT pg_current_xact_id()") // as any write has one
			require.NoError(t, err)
			require.NoError(t, w.pub.Publish(t.Context(), w.topic, message.NewMessage("m", []byte("{}"))))
			if of.stuck {
				ctx, cancel := context.WithCancel(t.Context())
				from := n.Load()
				go func() {
					tick := time.NewTicker(time.Millisecond)
					defer tick.Stop()
					for n.Load() < from+5 && ctx.Err() == nil {
						<-tick.C
					}
					cancel()
				}()
				_, err = reader.Receive(ctx, 1, 1<<20)
				cancel()
				require.ErrorIs(t, err, context.Canceled, "it is delivered now: it can be taken off the list of what is known bad")
				require.NoError(t, tx.Rollback())
			}
			d := w.next(reader)
			require.Equal(t, "m", d.ID)
			settle(t, reader, transport.Ack, d)
			leave()
			if !of.stuck {
				require.NoError(t, tx.Rollback())
			}
		})
	}
}

// A broker with an alarm keeps nobody for ever: publishing ends with its
// context, and so does closing. Known bad (W11): the stock publisher, whatever
// it confirms, has no context in either, and waits until the alarm is over.
func TestAMQPAlarm(t *testing.T) {
	t.Parallel()
	own := brokertest.Start(t, "rabbitmq")
	r := &rabbit{T: t, url: own.URL("rabbitmq")}
	alarm := func(watermark string) {
		own.Exec("rabbitmq", "rabbitmqctl", "set_vm_memory_high_watermark", "absolute", watermark)
	}
	topic := "t" + unique()
	tr := r.open(watermill.AMQPOptions{})
	require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: "g"}))
	kind, err := tr.OpenProducer(t.Context())
	require.NoError(t, err)
	stock := map[string]*wmamqp.Publisher{}
	for name, confirm := range map[string]bool{"confirmed": true, "unconfirmed": false} {
		c := wmamqp.NewDurablePubSubConfig(r.url, nil)
		c.Publish.ConfirmDelivery = confirm
		stock[name], err = wmamqp.NewPublisher(c, wm.NopLogger{})
		require.NoError(t, err)
		require.NoError(t, stock[name].Publish(topic, message.NewMessage("before", nil)))
	}
	alarm("1MB")

	type end struct {
		call string
		err  error
	}
	ends := make(chan end, 2*len(stock))
	for name, pub := range stock {
		blocked := pub.Connection().NotifyBlocked(make(chan amqp.Blocking, 2))
		m := message.NewMessage("during", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m.SetContext(ctx)
		go func() { ends <- end{name + " publish", pub.Publish(topic, m)} }()
		select {
		case b := <-blocked:
			require.True(t, b.Active)
		case <-time.After(30 * time.Second):
			require.Fail(t, "no alarm", name)
		}
		<-ctx.Done()
		go func() { ends <- end{name + " close", pub.Close()} }()
	}

	within := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return call(ctx)
	}
	publish := func(ctx context.Context) error { return kind.Publish(ctx, topic, message.NewMessage("m", nil)) }
	require.NoError(t, publish(t.Context()), "the broker takes one, and blocks the connection for it")
	require.ErrorIs(t, within(publish), context.DeadlineExceeded)
	require.NoError(t, publish(t.Context()), "on another connection")
	require.ErrorIs(t, within(kind.Close), context.DeadlineExceeded, "it cannot say goodbye")
	require.Empty(t, ends, "if these end now, they can be taken off the list of what is known bad")

	alarm("1GB")
	for range cap(ends) {
		select {
		case <-ends:
		case <-time.After(60 * time.Second):
			require.Fail(t, "the alarm is over, and they hang on")
		}
	}
	kind = r.producer(tr)
	require.NoError(t, publish(t.Context()))
}
