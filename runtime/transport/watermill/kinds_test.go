package watermill_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

func unique() string { return fmt.Sprintf("%08x", rand.Uint32()) }

// TestKinds_fidelity: id, payload, headers and key arrive as they were
// published, one message after the other, and the second time as well.
func TestKinds_fidelity(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		every := make([]byte, 256)
		many := message.Metadata{}
		for i := range every {
			every[i] = byte(i)
			many[fmt.Sprintf("header-%03d", i)] = fmt.Sprint(i)
		}
		all := map[string]*message.Message{}
		for _, m := range []*message.Message{
			{UUID: "nil payload"},
			{UUID: "empty payload", Payload: []byte{}},
			{UUID: "every byte", Payload: every},
			{UUID: "64 KiB", Payload: bytes.Repeat(every, 256)},
			{UUID: "many headers", Payload: []byte("x"), Metadata: many},
			{UUID: "odd headers", Payload: []byte("x"), Metadata: message.Metadata{"": "no name", "ü": "漢 🙂", "binary": "\x00\xff", "empty": ""}},
			{UUID: "key", Payload: []byte("x"), Metadata: message.Metadata{transport.KeyHeader: "ключ"}},
			{UUID: "a long id, longer than the column that ids are kept in", Payload: []byte("x")},
		} {
			all[m.UUID] = m
			require.NoError(w, w.pub.Publish(w.Context(), w.topic, m))
		}
		c, leave := w.join()
		check := func(d *transport.Delivery) {
			want := all[d.ID]
			require.NotNil(w, want, d.ID)
			require.Equal(w, want.Payload == nil, d.Payload == nil, "%s: nil and empty are kept apart", d.ID)
			require.True(w, bytes.Equal(want.Payload, d.Payload), d.ID)
			require.Len(w, d.Headers, len(want.Metadata), d.ID)
			for k, v := range want.Metadata {
				require.Equal(w, v, d.Headers.Get(k), "%s: %q", d.ID, k)
			}
			require.Equal(w, want.Metadata.Get(transport.KeyHeader), d.Key)
		}
		check(w.next(c)) // and it is held
		leave()
		c, _ = w.join()
		for len(all) > 0 {
			d := w.next(c)
			if all[d.ID] == nil {
				continue // it was on its way twice
			}
			check(d)
			settle(w.T, c, transport.Ack, d)
			delete(all, d.ID)
		}
	})
}

// TestKinds_partialBatch: of what is acked nothing comes again after a clean
// end, however soon that is after the ack, and the rest does.
func TestKinds_partialBatch(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		const n = 30
		var msgs []*message.Message
		want := map[string]string{}
		for i := range n {
			id := fmt.Sprint("m-", i)
			msgs = append(msgs, message.NewMessage(id, []byte("x")))
			want[id] = id
		}
		require.NoError(w, w.pub.Publish(w.Context(), w.topic, msgs...))
		for len(want) > 0 {
			c, leave := w.join()
			for range min(7, len(want)) {
				d := w.next(c)
				require.Contains(w, want, d.ID, "acked before")
				settle(w.T, c, transport.Ack, d)
				delete(want, d.ID)
			}
			leave()
		}
	})
}

// TestKinds_release: what is given back comes again to who receives on.
func TestKinds_release(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		require.NoError(w, w.pub.Publish(w.Context(), w.topic, message.NewMessage("m", []byte("x"))))
		c, _ := w.join()
		for range 3 {
			d := w.next(c)
			require.Equal(w, "m", d.ID)
			settle(w.T, c, transport.Record, d)
			settle(w.T, c, transport.Release, d)
		}
		settle(w.T, c, transport.Ack, w.next(c))
		ctx, cancel := context.WithTimeout(w.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := c.Receive(ctx, 1, 1<<20)
		require.ErrorIs(w, err, context.DeadlineExceeded)
	})
}

// TestKinds_foreignRows: what others have put into a table of watermill-sql
// stops nobody.
func TestKinds_foreignRows(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		if w.tr.Kind() != "watermill-postgres" && w.tr.Kind() != "watermill-mysql" {
			return // transporttest's A3_foreign is run on those
		}
		db := database(w.T, w.tr.Kind())
		for _, metadata := range []string{`'{"n": 5, "list": [1]}'`, "NULL", `'[]'`, `'"text"'`} {
			insert := `INSERT INTO "watermill_` + w.topic + `" (uuid, payload, metadata, transaction_id) VALUES ('', NULL, ` + metadata + `, pg_current_xact_id())`
			if w.tr.Kind() == "watermill-mysql" {
				insert = "INSERT INTO `watermill_" + w.topic + "` (uuid, payload, metadata) VALUES ('', NULL, " + metadata + ")"
			}
			_, err := db.ExecContext(w.Context(), insert)
			require.NoError(w, err)
		}
		require.NoError(w, w.pub.Publish(w.Context(), w.topic, message.NewMessage("good", []byte("x"))))
		c, _ := w.join()
		ids := map[string]bool{}
		for range 5 {
			d := w.next(c)
			ids[d.ID] = true
			settle(w.T, c, transport.Ack, d)
		}
		require.Len(w, ids, 5, "each has an id, of its place where it has none of its own")
		require.True(w, ids["good"])
	})
}

func database(t *testing.T, kind string) *sql.DB {
	t.Helper()
	var driver, address string
	if kind == "watermill-postgres" {
		driver, address = "pgx", brokertest.URL(t, "postgres")
	} else {
		driver, address = "mysql", mysqlDSN(brokertest.URL(t, "mariadb"))
	}
	db, err := sql.Open(driver, address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestKindsRefuseWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	_, err := watermill.Kafka(watermill.KafkaOptions{})
	require.ErrorContains(t, err, "brokers is empty")
	_, err = watermill.Kafka(watermill.KafkaOptions{Brokers: []string{"h:1"}, Version: "new"})
	require.ErrorContains(t, err, "version")
	for _, url := range []string{"", "host:5672", "http://host", "amqp://user:sec%ret@host", "amqp://user:sec ret@host\x7f"} {
		_, err := watermill.AMQP(watermill.AMQPOptions{URL: config.NewSecret(url)})
		require.ErrorContains(t, err, "want amqp://", url)
		require.NotContains(t, err.Error(), "ret@")
	}
	for name, open := range map[string]func(watermill.SQLOptions) (transport.Transport, error){"watermill-postgres": watermill.Postgres, "watermill-mysql": watermill.MySQL} {
		_, err := open(watermill.SQLOptions{})
		require.EqualError(t, err, name+": no database: give a url")
		_, err = open(watermill.SQLOptions{URL: config.NewSecret("http://user:secret@h\x7f")})
		require.ErrorContains(t, err, "url is not one")
		require.NotContains(t, err.Error(), "secret")
	}
}

// Port 1 of this machine refuses at once.
func TestKindsWithoutABroker(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() (transport.Transport, error){
		"watermill-kafka": func() (transport.Transport, error) {
			return watermill.Kafka(watermill.KafkaOptions{Brokers: []string{"127.0.0.1:1"}})
		},
		"watermill-amqp": func() (transport.Transport, error) {
			return watermill.AMQP(watermill.AMQPOptions{URL: config.NewSecret("amqp://u:secret@127.0.0.1:1/")})
		},
		"watermill-postgres": func() (transport.Transport, error) {
			return watermill.Postgres(watermill.SQLOptions{URL: config.NewSecret("postgres://u:secret@127.0.0.1:1/d")})
		},
		"watermill-mysql": func() (transport.Transport, error) {
			return watermill.MySQL(watermill.SQLOptions{URL: config.NewSecret("mysql://u:secret@127.0.0.1:1/d")})
		},
	} {
		tr, err := open()
		require.NoError(t, err, "making one touches nothing")
		require.Equal(t, name, tr.Kind())
		require.Equal(t, transport.KeepProcess, tr.Capabilities().Attempts)
		require.True(t, tr.Capabilities().Durable)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err = tr.OpenConsumer(ctx, transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
		cancel()
		require.Error(t, err)
		require.False(t, transport.Refused(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), "secret")
		require.NoError(t, tr.Close(t.Context()))
		require.NoError(t, tr.Close(t.Context()))
		_, err = tr.OpenProducer(t.Context())
		require.ErrorIs(t, err, transport.ErrClosed)
	}
}

// mysqlDSN makes the driver's address of a URL.
func mysqlDSN(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.User.String() + "@tcp(" + u.Host + ")" + u.Path
}
