package watermill_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// nowhere is a database that cannot be reached.
type nowhere struct{}

var errNowhere = errors.New("no database here")

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errNowhere }
func (nowhere) Driver() driver.Driver                        { return nil }

func TestKinds(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(nowhere{})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for kind, construct := range map[string]func() (transport.Transport, error){
		"watermill-kafka": func() (transport.Transport, error) {
			return watermill.Kafka(watermill.KafkaOptions{Brokers: []string{"127.0.0.1:9092"}})
		},
		"watermill-amqp": func() (transport.Transport, error) {
			return watermill.AMQP(watermill.AMQPOptions{URL: "amqp://u:p@127.0.0.1:5672/"})
		},
		"watermill-postgres": func() (transport.Transport, error) { return watermill.Postgres(db) },
		"watermill-mysql":    func() (transport.Transport, error) { return watermill.MySQL(db) },
	} {
		tr, err := construct()
		require.NoError(t, err, kind)
		require.Equal(t, kind, tr.Kind())
		require.Equal(t, transport.KeepProcess, tr.Capabilities().Attempts)
		require.True(t, tr.Capabilities().Durable)
		require.NoError(t, tr.Close(t.Context()))
	}
}

func TestKindsRefuseWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	_, err := watermill.Kafka(watermill.KafkaOptions{})
	require.ErrorContains(t, err, "brokers is empty")
	for _, url := range []string{"", "host:5672", "http://host", "amqp://user:sec%ret@host", "amqp://user:sec ret@host\x7f"} {
		_, err := watermill.AMQP(watermill.AMQPOptions{URL: url})
		require.ErrorContains(t, err, "want amqp://", url)
		require.NotContains(t, err.Error(), "ret@")
	}
	_, err = watermill.Postgres(nil)
	require.EqualError(t, err, "watermill-postgres: no database")
	_, err = watermill.MySQL(nil)
	require.EqualError(t, err, "watermill-mysql: no database")
}

func TestKafkaSubscriberIsBuilt(t *testing.T) {
	t.Parallel()
	tr, err := watermill.Kafka(watermill.KafkaOptions{Brokers: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	for _, start := range []transport.Start{"", transport.StartLatest} {
		c, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Group: "g", Start: start, Base: t.Context()})
		require.NoError(t, err, "nothing is dialled before a topic is asked for")
		require.NoError(t, c.Close(t.Context()))
	}
}

// Port 1 of this machine refuses at once.
func TestAMQPWithoutABroker(t *testing.T) {
	t.Parallel()
	tr, err := watermill.AMQP(watermill.AMQPOptions{URL: "amqp://u:secret@127.0.0.1:1/"})
	require.NoError(t, err)
	_, err = tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
	require.ErrorContains(t, err, "open subscriber: ")
	require.NotContains(t, err.Error(), "secret")
	_, err = tr.OpenProducer(t.Context())
	require.ErrorContains(t, err, "open publisher: ")
}

func TestSQLWithoutADatabase(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(nowhere{})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, construct := range []func(*sql.DB) (transport.Transport, error){watermill.Postgres, watermill.MySQL} {
		tr, err := construct(db)
		require.NoError(t, err)
		_, err = tr.OpenConsumer(t.Context(), transport.ConsumerConfig{Topics: []string{"a"}, Group: "g", Base: t.Context()})
		require.ErrorContains(t, err, `subscribe to topic "a": `)
		require.ErrorContains(t, err, errNowhere.Error())
		require.ErrorContains(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: "a"}), errNowhere.Error())
		pub, err := tr.OpenProducer(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, pub.Publish(t.Context(), "a"), errNowhere.Error())
		require.NoError(t, pub.Close(t.Context()))
	}
}
