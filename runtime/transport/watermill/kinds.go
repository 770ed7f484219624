package watermill

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// KafkaOptions are those of the kind watermill-kafka.
type KafkaOptions struct {
	Brokers []string `yaml:"brokers"` // host:port; at least one
}

// Kafka is watermill-kafka. Topics are left to the broker to make, or to you.
func Kafka(o KafkaOptions) (transport.Transport, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("watermill-kafka: brokers is empty: name at least one host:port")
	}
	return &adapter{
		kind: "watermill-kafka",
		caps: capabilities(true),
		subscriber: func(cfg transport.ConsumerConfig, log wm.LoggerAdapter) (message.Subscriber, error) {
			config := kafka.DefaultSaramaSubscriberConfig()
			if cfg.Start != transport.StartLatest {
				config.Consumer.Offsets.Initial = -2 // the oldest
			}
			return kafka.NewSubscriber(kafka.SubscriberConfig{
				Brokers: o.Brokers, Unmarshaler: kafka.DefaultMarshaler{}, ConsumerGroup: cfg.Group, OverwriteSaramaConfig: config,
			}, log)
		},
		publisher: func() (message.Publisher, error) {
			return kafka.NewPublisher(kafka.PublisherConfig{Brokers: o.Brokers, Marshaler: kafka.DefaultMarshaler{}}, nil)
		},
	}, nil
}

// AMQPOptions are those of the kind watermill-amqp.
type AMQPOptions struct {
	URL string `yaml:"url"` // amqp://user:password@host:5672/vhost
}

// AMQP is watermill-amqp: a topic is a fanout exchange, a group a durable
// queue named topic--group.
func AMQP(o AMQPOptions) (transport.Transport, error) {
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" {
		return nil, errors.New("watermill-amqp: url is not one: want amqp://user:password@host:5672/vhost, with special characters escaped")
	}
	config := func(group string) wmamqp.Config {
		c := wmamqp.NewDurablePubSubConfig(o.URL, func(topic string) string { return topic + "--" + group })
		c.Publish.ConfirmDelivery = true
		return c
	}
	return &adapter{
		kind: "watermill-amqp",
		caps: capabilities(true),
		subscriber: func(cfg transport.ConsumerConfig, log wm.LoggerAdapter) (message.Subscriber, error) {
			return wmamqp.NewSubscriber(config(cfg.Group), log)
		},
		publisher: func() (message.Publisher, error) { return wmamqp.NewPublisher(config(""), wm.NopLogger{}) },
	}, nil
}

// ackDeadline replaces the 30s after which watermill-sql hands a message out
// again, which a message that waits for its next attempt may well take.
const ackDeadline = 24 * time.Hour

// Postgres is watermill-sql on PostgreSQL, with its default tables, which
// hold bodies as JSON. db stays the caller's to close.
func Postgres(db *sql.DB) (transport.Transport, error) {
	return sqlKind("watermill-postgres", db, wmsql.DefaultPostgreSQLSchema{}, wmsql.DefaultPostgreSQLOffsetsAdapter{})
}

// MySQL is watermill-sql on MySQL or MariaDB; else as [Postgres].
func MySQL(db *sql.DB) (transport.Transport, error) {
	return sqlKind("watermill-mysql", db, wmsql.DefaultMySQLSchema{}, wmsql.DefaultMySQLOffsetsAdapter{})
}

func sqlKind(kind string, db *sql.DB, schema wmsql.SchemaAdapter, offsets wmsql.OffsetsAdapter) (transport.Transport, error) {
	if db == nil {
		return nil, fmt.Errorf("%s: no database", kind)
	}
	deadline := ackDeadline
	subscriber := func(cfg transport.ConsumerConfig, log wm.LoggerAdapter) (message.Subscriber, error) {
		return wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
			ConsumerGroup: cfg.Group, AckDeadline: &deadline, SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true,
		}, log)
	}
	return &adapter{
		kind:       kind,
		caps:       capabilities(true),
		subscriber: subscriber,
		publisher: func() (message.Publisher, error) {
			return wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, wm.NopLogger{})
		},
		initialize: func(topic string) error {
			sub, err := subscriber(transport.ConsumerConfig{}, wm.NopLogger{})
			if err != nil {
				return err
			}
			return errors.Join(initialize(sub, topic), sub.Close())
		},
	}, nil
}
