package pubsub_test

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	kinds "github.com/leat-io/leat/runtime/transport/watermill"
)

// contest is one Pub/Sub, stock and as a kind.
type contest struct {
	broker string
	stock  func(tb testing.TB, url, group string) (message.Publisher, message.Subscriber, error)
	kind   func(url string) (transport.Transport, error)
}

func contests() map[string]contest {
	return map[string]contest{
		"kafka": {"kafka", stocks()["kafka"].open, stocks()["kafka"].ours["kind"]},
		"amqp":  {"rabbitmq", stocks()["rabbitmq"].open, stocks()["rabbitmq"].ours["kind"]},
		"postgres": {"postgres", stockPostgres, func(url string) (transport.Transport, error) {
			return kinds.Postgres(kinds.SQLOptions{URL: config.NewSecret(url), PollInterval: 10 * time.Millisecond})
		}},
		"mysql": {"mariadb", stockMySQL, func(url string) (transport.Transport, error) {
			return kinds.MySQL(kinds.SQLOptions{URL: config.NewSecret(url), PollInterval: 10 * time.Millisecond})
		}},
	}
}

func stockPostgres(tb testing.TB, at, group string) (message.Publisher, message.Subscriber, error) {
	tb.Helper()
	schema := wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
	return stockSQL(tb, "pgx", at, group, schema, wmsql.DefaultPostgreSQLOffsetsAdapter{})
}

func stockMySQL(tb testing.TB, at, group string) (message.Publisher, message.Subscriber, error) {
	tb.Helper()
	u, err := url.Parse(at)
	if err != nil {
		return nil, nil, err
	}
	schema := wmsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "LONGBLOB" }, SubscribeBatchSize: 1} // as the kind
	return stockSQL(tb, "mysql", u.User.String()+"@tcp("+u.Host+")"+u.Path, group, schema, wmsql.DefaultMySQLOffsetsAdapter{})
}

func stockSQL(tb testing.TB, driver, address, group string, schema wmsql.SchemaAdapter, offsets wmsql.OffsetsAdapter) (message.Publisher, message.Subscriber, error) {
	tb.Helper()
	db, err := stdsql.Open(driver, address)
	if err != nil {
		return nil, nil, err
	}
	tb.Cleanup(func() { _ = db.Close() })
	sub, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		ConsumerGroup: group, SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, nil, err
	}
	pub, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
	return pub, sub, err
}

// BenchmarkKinds has the same messages of the same broker handled by Watermill's
// Router with its stock Pub/Sub, and by the engine over the kind.
func BenchmarkKinds(b *testing.B) {
	for name, c := range contests() {
		for _, work := range []time.Duration{0, 5 * time.Millisecond} {
			b.Run(fmt.Sprintf("%s/%v/router", name, work), func(b *testing.B) { c.run(b, work, c.router) })
			b.Run(fmt.Sprintf("%s/%v/engine", name, work), func(b *testing.B) { c.run(b, work, c.engine) })
		}
	}
}

func (c contest) run(b *testing.B, work time.Duration, consume func(ctx context.Context, b *testing.B, url, topic string, h message.HandlerFunc) (wait func())) {
	b.Helper()
	at := brokertest.URL(b, c.broker)
	topic := fmt.Sprintf("b%08x", rand.Uint32())
	tr, err := c.kind(at)
	require.NoError(b, err)
	ctx := context.Background()
	require.NoError(b, tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: "engine"}))
	if c.broker == "rabbitmq" { // the stock queue has to be there too
		pub, sub, err := c.stock(b, at, "router")
		require.NoError(b, err)
		require.NoError(b, pub.Close())
		require.NoError(b, sub.(message.SubscribeInitializer).SubscribeInitialize(topic))
		require.NoError(b, sub.Close())
	}
	p, err := tr.OpenProducer(ctx)
	require.NoError(b, err)
	for at := 0; at < b.N; at += 500 {
		var batch []*message.Message
		for i := at; i < min(b.N, at+500); i++ {
			batch = append(batch, message.NewMessage(watermill.NewUUID(), []byte(strings.Repeat("x", 100))))
		}
		require.NoError(b, p.Publish(ctx, topic, batch...))
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	b.ResetTimer()
	wait := consume(stopping, b, at, topic, func(*message.Message) ([]*message.Message, error) {
		if work > 0 {
			<-time.After(work)
		}
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil, nil
	})
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	stop()
	wait()
	require.NoError(b, p.Close(ctx))
	require.NoError(b, tr.Close(ctx))
}

func (c contest) router(ctx context.Context, b *testing.B, at, topic string, h message.HandlerFunc) func() {
	b.Helper()
	pub, sub, err := c.stock(b, at, "router")
	require.NoError(b, err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(b, err)
	router.AddHandler("h", topic, sub, "none", pub, h)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	return func() {
		require.NoError(b, <-ended)
		require.NoError(b, sub.Close())
		require.NoError(b, pub.Close())
	}
}

func (c contest) engine(ctx context.Context, b *testing.B, at, topic string, h message.HandlerFunc) func() {
	b.Helper()
	tr, err := c.kind(at)
	require.NoError(b, err)
	router := runtime.NewRouter(runtime.Options{})
	require.NoError(b, router.Consume("h", tr, topic, h, transport.Policy{
		Group: "engine", Concurrency: 256, DeadLetter: transport.DeadLetter{Mode: transport.DeadBlock},
	}))
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	return func() {
		require.NoError(b, <-ended)
		require.NoError(b, tr.Close(context.WithoutCancel(ctx)))
	}
}
