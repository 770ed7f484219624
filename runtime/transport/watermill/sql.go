package watermill

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// SQLOptions are those of the kinds watermill-postgres and watermill-mysql.
type SQLOptions struct {
	// URL is postgres://user:password@host:5432/database, or mysql://… alike.
	URL config.Secret `yaml:"url"`
	// DB takes the place of URL, and stays the caller's to close.
	DB *sql.DB `yaml:"-"`
	// PollInterval is the pause after a look that found nothing. Default: 250ms.
	PollInterval time.Duration `yaml:"poll_interval" min:"1ms"`
	// BatchSize is how many rows are read in one transaction, one of which is
	// in flight; after a crash so many come again. On MySQL it is 1 unless it is
	// said. Default: 100.
	BatchSize int `yaml:"batch_size" min:"0"`
	// Payload is the type of the payload's column in a table that is made: bytes,
	// or json, which holds nothing else. Default: bytes.
	Payload string `yaml:"payload" enum:"bytes,json"`
}

// ackDeadline replaces the 30s after which watermill-sql hands a message out
// again, which a message that waits for its next attempt may well take.
const ackDeadline = 24 * time.Hour

// Postgres is watermill-sql on PostgreSQL. A topic has one message in flight for
// each group, over all instances.
func Postgres(o SQLOptions) (transport.Transport, error) {
	const limit = 63
	k := &sqlKind{
		name: "watermill-postgres", SQLOptions: o, quote: `"`, limit: limit,
		begin: `INSERT INTO %[2]s (consumer_group, offset_acked, last_processed_transaction_id)
			SELECT $1, COALESCE(max("offset"), 0), COALESCE(max(transaction_id::text::bigint), 0)::text::xid8 FROM %[1]s WHERE %[3]s ON CONFLICT DO NOTHING`,
		member:    "SELECT count(*) FROM %s WHERE consumer_group = $1",
		isMissing: func(err error) bool { return pgCode(err) == "42P01" },
		isRefused: func(err error) bool {
			switch pgCode(err) {
			case "28P01", "28000", "3D000", "42501":
				return true
			default:
				return false
			}
		},
	}
	k.schema = pgSchema{wmsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: k.messages, GeneratePayloadType: k.payload("BYTEA"), SubscribeBatchSize: o.BatchSize,
	}}
	k.offsets = wmsql.DefaultPostgreSQLOffsetsAdapter{GenerateMessagesOffsetsTableName: k.offsetsTable}
	return k.open(func(raw string) (*sql.DB, error) {
		c, err := pgx.ParseConfig(raw)
		if err != nil {
			return nil, errors.New("url is not one: want postgres://user:password@host:5432/database, with special characters escaped")
		}
		return stdlib.OpenDB(*c), nil
	})
}

// MySQL is watermill-sql on MySQL or MariaDB; else as [Postgres]. Its reader
// locks the rows it looks at, and beyond the last one where there are fewer than
// BatchSize: then nothing can be published to the topic while one is handled.
func MySQL(o SQLOptions) (transport.Transport, error) {
	if o.BatchSize == 0 {
		o.BatchSize = 1
	}
	const limit = 64
	k := &sqlKind{
		name: "watermill-mysql", SQLOptions: o, quote: "`", limit: limit,
		begin: "INSERT IGNORE INTO %[2]s (consumer_group, offset_acked, offset_consumed)\n" +
			"SELECT ?, COALESCE(max(`offset`), 0), COALESCE(max(`offset`), 0) FROM %[1]s WHERE %[3]s",
		member:    "SELECT count(*) FROM %s WHERE consumer_group = ?",
		isMissing: func(err error) bool { return myCode(err) == 1146 },
		isRefused: func(err error) bool {
			switch myCode(err) {
			case 1044, 1045, 1049, 1142, 1227:
				return true
			default:
				return false
			}
		},
	}
	k.schema = mySchema{wmsql.DefaultMySQLSchema{
		GenerateMessagesTableName: k.messages, GeneratePayloadType: k.payload("LONGBLOB"), SubscribeBatchSize: o.BatchSize,
	}}
	k.offsets = wmsql.DefaultMySQLOffsetsAdapter{GenerateMessagesOffsetsTableName: k.offsetsTable}
	return k.open(func(raw string) (*sql.DB, error) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "mysql" || u.Host == "" {
			return nil, errors.New("url is not one: want mysql://user:password@host:3306/database, with special characters escaped")
		}
		c := mysql.NewConfig()
		c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		c.User = u.User.Username()
		c.Passwd, _ = u.User.Password()
		if u.Port() == "" {
			c.Addr += ":3306"
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	})
}

// sqlKind is what both have in common.
type sqlKind struct {
	SQLOptions

	name    string
	db      *sql.DB
	schema  wmsql.SchemaAdapter
	offsets wmsql.OffsetsAdapter
	quote   string
	limit   int // of a table's name
	// begin gives a group its place: behind the rows of a condition. member
	// counts the places it has.
	begin, member string
	// isMissing tells a table that is not there, isRefused what no waiting mends.
	isMissing, isRefused func(error) bool
}

func (k *sqlKind) messages(topic string) string {
	return k.quote + table(messagesPrefix, topic, k.limit) + k.quote
}

func (k *sqlKind) offsetsTable(topic string) string {
	return k.quote + table(offsetsPrefix, topic, k.limit) + k.quote
}

func (k *sqlKind) payload(bytes string) func(string) string {
	return func(string) string {
		if k.Payload == "json" {
			return "JSON"
		}
		return bytes
	}
}

func (k *sqlKind) open(connect func(string) (*sql.DB, error)) (transport.Transport, error) {
	t := &adapter{kind: k.name, caps: capabilities(), source: k.source, publisher: k.publisher, declare: k.declare}
	switch {
	case k.DB != nil:
		k.db = k.DB
	case k.URL.IsZero():
		return nil, fmt.Errorf("%s: no database: give a url", k.name)
	default:
		var err error
		if k.db, err = connect(k.URL.Reveal()); err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		t.close = k.db.Close
	}
	if k.PollInterval == 0 {
		k.PollInterval = 250 * time.Millisecond
	}
	t.caps.StableCoordinates = true
	t.caps.History = true
	t.caps.Durable = true
	t.caps.InFlight = 1
	return t, nil
}

func (k *sqlKind) subscriber(group string, log wm.LoggerAdapter) (*wmsql.Subscriber, error) {
	deadline := ackDeadline
	return wmsql.NewSubscriber(k.db, wmsql.SubscriberConfig{
		ConsumerGroup: group, AckDeadline: &deadline, SchemaAdapter: k.schema, OffsetsAdapter: k.offsets,
		PollInterval: k.PollInterval, ResendInterval: 50 * time.Millisecond, BackoffManager: pauses{k.PollInterval},
	}, log)
}

func (k *sqlKind) source(cfg transport.ConsumerConfig, log wm.LoggerAdapter) (*source, error) {
	sub, err := k.subscriber(cfg.Group, log)
	if err != nil {
		return nil, err
	}
	return &source{sub: sub, read: readSQL}, nil
}

func (k *sqlKind) publisher() (transport.Producer, error) {
	pub, err := wmsql.NewPublisher(k.db, wmsql.PublisherConfig{SchemaAdapter: k.schema, AutoInitializeSchema: true}, wm.NopLogger{})
	if err != nil {
		return nil, err
	}
	return &producer{pub: pub}, nil
}

// declare makes the tables of a topic, and a group's place where it begins
// with what is published from now on.
func (k *sqlKind) declare(ctx context.Context, mode transport.Topology, d transport.Declaration) error {
	if mode == transport.TopologyVerify {
		return k.verify(ctx, d)
	}
	sub, err := k.subscriber(d.Group, wm.NopLogger{})
	if err != nil {
		return err
	}
	err = sub.SubscribeInitialize(d.Topic)
	for tries := 0; err != nil && !k.isRefused(err) && tries < 3 && ctx.Err() == nil; tries++ {
		err = sub.SubscribeInitialize(d.Topic) // two that make a table at once may get in each other's way
	}
	if err != nil || d.Group == "" {
		return k.refuse(err)
	}
	where := "1 = 0"
	if d.Start == transport.StartLatest {
		where = "1 = 1"
	}
	_, err = k.db.ExecContext(ctx, fmt.Sprintf(k.begin, k.messages(d.Topic), k.offsetsTable(d.Topic), where), d.Group)
	return k.refuse(err)
}

func (k *sqlKind) verify(ctx context.Context, d transport.Declaration) error {
	for _, name := range []string{k.messages(d.Topic), k.offsetsTable(d.Topic)} {
		_, err := k.db.ExecContext(ctx, "SELECT 1 FROM "+name+" WHERE 1 = 0") //nolint:gosec // topics have no quotes
		if k.isMissing(err) {
			return transport.Refuse(fmt.Errorf("table %s does not exist: set topology to declare", name))
		}
		if err != nil {
			return k.refuse(err)
		}
	}
	if d.Group == "" {
		return nil
	}
	n := 0
	err := k.db.QueryRowContext(ctx, fmt.Sprintf(k.member, k.offsetsTable(d.Topic)), d.Group).Scan(&n)
	if err == nil && n == 0 {
		return transport.Refuse(fmt.Errorf("group %q has no place in table %s: set topology to declare", d.Group, k.offsetsTable(d.Topic)))
	}
	return k.refuse(err)
}

func (k *sqlKind) refuse(err error) error {
	if err != nil && k.isRefused(err) {
		return transport.Refuse(err)
	}
	return err
}

func pgCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

func myCode(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// pauses are those between looks at a table; the library's own has none after
// a deadlock, of which there may be one after the other.
type pauses struct{ poll time.Duration }

// HandleError gives the pause.
func (p pauses) HandleError(_ wm.LoggerAdapter, none bool, err error) time.Duration {
	switch {
	case err != nil && (myCode(err) == 1213 || pgCode(err) == "40001" || pgCode(err) == "40P01"):
		return 10 * time.Millisecond
	case err != nil:
		return max(p.poll, time.Second)
	case none:
		return p.poll
	default:
		return 0
	}
}

var _ message.SubscribeInitializer = (*wmsql.Subscriber)(nil)
