// Package builtin is the one table of all transports, stores, middleware and
// handlers that are part of Leat. Adding one is one line here.
package builtin

import (
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/transport/kafka"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/transport/watermill"
	"github.com/leat-io/leat/runtime/worker"
)

// All makes everything in the table known to a worker. A program that wants
// fewer dependencies gives worker.Parts a table of its own.
func All() worker.Option { return worker.Parts(Table()) }

// Table is what is built in.
func Table() worker.Table {
	return worker.Table{
		Transports: []worker.TransportKind{
			{Kind: "sqlite", Example: "sqlite://worker.db", Doc: "an SQLite file, shared by processes of one machine", Options: &sql.Options{}, Open: openSQLite},
			{Kind: "postgres", Schemes: []string{"postgresql"}, Example: "postgres://user@host:5432/database", Doc: "a PostgreSQL database", Options: &sql.ServerOptions{}, Open: openPostgres},
			{Kind: "mysql", Schemes: []string{"mariadb"}, Example: "mysql://user@host:3306/database", Doc: "a MariaDB or MySQL database", Options: &sql.ServerOptions{}, Open: openMySQL},
			{Kind: "kafka", Example: "kafka://host1:9092,host2:9092", Doc: "Apache Kafka", Options: &kafka.Options{}, Open: openKafka},
			{Kind: "amqp", Schemes: []string{"amqps"}, Example: "amqp://host:5672/vhost", Doc: "RabbitMQ", Options: &amqp.Options{}, Open: openAMQP},
			{Kind: "memory", Example: "memory://name", Doc: "within one process: for tests", Options: &memory.Options{}, Open: openMemory},
			{Kind: "watermill-kafka", Example: "watermill-kafka://host1:9092,host2:9092", Doc: "Watermill's Kafka Pub/Sub", Options: &watermill.KafkaOptions{}, Open: openWatermillKafka},
			{Kind: "watermill-amqp", Example: "watermill-amqp://host:5672/vhost", Doc: "Watermill's AMQP Pub/Sub", Options: &watermill.AMQPOptions{}, Open: openWatermillAMQP},
			{Kind: "watermill-postgres", Example: "watermill-postgres://host:5432/database", Doc: "Watermill's tables in PostgreSQL", Options: &watermill.SQLOptions{}, Open: openWatermillPostgres},
			{Kind: "watermill-mysql", Example: "watermill-mysql://host:3306/database", Doc: "Watermill's tables in MySQL or MariaDB", Options: &watermill.SQLOptions{}, Open: openWatermillMySQL},
		},
		Stores: []worker.StoreKind{
			{Kind: "sqlite", Doc: "tables in an SQLite file", Options: &sql.Options{}, Check: sqliteStore},
			{Kind: "postgres", Schemes: []string{"postgresql"}, Doc: "tables in a PostgreSQL database", Options: &sql.ServerOptions{}, Check: serverStore(sqldb.Postgres)},
			{Kind: "mysql", Schemes: []string{"mariadb"}, Doc: "tables in a MariaDB or MySQL database", Options: &sql.ServerOptions{}, Check: serverStore(sqldb.MySQL)},
			{Kind: "memory", Doc: "forgotten at the end of the process", PerProcess: true, Options: &memoryStoreOptions{}, Check: memoryStore},
		},
		Middleware: []worker.MiddlewareKind{
			{Name: "dead_letter", Option: "dead_letter", Doc: "keeps what has failed for good, or drops it, or blocks"},
			{Name: "dedup", Option: "dedup", Doc: "leaves out what was handled before"},
			{Name: "retry", Option: "retry", Doc: "tries again after growing waits"},
			{Name: "timeout", Option: "timeout", Doc: "bounds one attempt"},
			{Name: "recover", Option: "(always on)", Doc: "turns a panic into a failed attempt"},
		},
		Handlers: []worker.HandlerKind{
			{Name: "log", Doc: "logs that a message came, and acks it", Options: &handlers.LogOptions{}, Build: buildLog},
			{Name: "discard", Doc: "acks", Options: &struct{}{}, Build: buildDiscard},
			{Name: "forward", Doc: "returns the message, for publish_to", Options: &handlers.ForwardOptions{}, Build: buildForward},
		},
	}
}
