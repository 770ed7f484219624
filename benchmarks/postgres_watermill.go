package main

import (
	"errors"
	"net/url"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/benchmarks/harness"
)

// watermillPostgres measures watermill-sql with its default schema, payloads
// as bytes, and a poll of 10 ms instead of a second.
func watermillPostgres(times int, handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inDatabase(postgresBroker, func(rawURL string) error {
			u, err := url.Parse(rawURL)
			if err != nil {
				return err
			}
			db, err := openDatabase(u)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }() // all is done by then
			schema := wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "bytea" }}
			p, err := wsql.NewPublisher(db, wsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			const batch = 1000
			for at := 0; at < times*n; at += batch {
				if err := p.Publish(topic, kibibytes(at, min(batch, times*n-at))...); err != nil {
					return err
				}
			}
			if err := errors.Join(p.Close(), vacuum(background(), rawURL)); err != nil {
				return err
			}
			s, err := wsql.NewSubscriber(db, wsql.SubscriberConfig{
				ConsumerGroup: topic, PollInterval: 10 * time.Millisecond,
				SchemaAdapter: schema, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
			}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			if times > 100 {
				times = 3 // to the middle of a million it would take most of an hour
			}
			return routed(m, n, times, topic, handle, s)
		})
	}
}
