package watermill_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// kind is one of the four, on a real broker.
type kind struct {
	broker string // of brokertest
	open   func(url string) (transport.Transport, error)
	config string // of a worker's file, for the URL
	// foreign puts messages of others into a topic.
	foreign func(tb transporttest.TB, url, topic, group string) int
	// parallel is how many cases run at once, of either suite.
	parallel int
	// cases that are run; empty: all of them.
	cases []string
	// cannot says of each case that fails why that is out of our reach.
	cannot       map[string]string
	engineMore   []string // cases, besides those of all kinds
	engineCannot map[string]string
	inFlight     int // messages of a topic; 0: as many as one likes
	// required are run, besides those of all kinds.
	required []string
	// own: it needs a server that nobody else uses.
	own bool
}

func (k *kind) url(t *testing.T) string {
	t.Helper()
	if k.own {
		return brokertest.Start(t, k.broker).URL(k.broker)
	}
	return brokertest.URL(t, k.broker)
}

const (
	oneInFlight = "a group has one message of a topic in flight, and the case wants many"
	noOrder     = "several subscriptions of a queue give no order, and one would have one message in flight"
	eager       = "sarama takes all partitions away at a rebalance: some come back to the member that held them"
)

// required are run on every kind, and always; LEAT_SOAK has the others. What
// needs more than a message in flight is in TestKinds_… for those that have one.
var required = []string{"A1_no_loss", "A4_refused", "A6_exclusive", "D5_context", "H1_leave", "H5_no_leaks"}

// sequential are the cases that hold one message at a time, or take what they hold.
var sequential = []string{
	"A1_no_loss", "A4_refused", "A6_exclusive", "B1_key_order", "D5_context", "H1_leave", "H5_no_leaks",
	"SPI_close", "SPI_depth", "SPI_incomplete", "SPI_off", "SPI_unsupported", "SPI_verify",
}

func kinds() map[string]kind {
	return map[string]kind{
		"watermill-kafka": {
			broker: "kafka",
			config: "{watermill-kafka: {brokers: [%q], in_flight: 256}}",
			open: func(url string) (transport.Transport, error) {
				return watermill.Kafka(watermill.KafkaOptions{Brokers: hosts(url), InFlight: 256})
			},
			foreign:    foreignRecords,
			cannot:     map[string]string{"H1_join": eager},
			required:   []string{"A2_fidelity", "A3_foreign", "B1_key_order", "C1_release", "C3_partial_batch", "I1_reopen"},
			engineMore: []string{"B1_key_order", "B2_order_with_retries", "B3_rebalanced", "E5_dead_letter_order"},
		},
		"watermill-amqp": {
			broker: "rabbitmq",
			config: "{watermill-amqp: {url: %q, subscriptions: 256}}",
			open: func(url string) (transport.Transport, error) {
				return watermill.AMQP(watermill.AMQPOptions{URL: config.NewSecret(url), Subscriptions: 256})
			},
			foreign:  foreignMessages,
			cannot:   map[string]string{"B1_key_order": noOrder, "C3_partial_batch": noOrder},
			required: []string{"A2_fidelity", "A3_foreign", "C1_release", "E4_dead_letter_kept", "I1_reopen"},
		},
		"watermill-postgres": {
			broker:   "postgres",
			parallel: 1, own: true, // a transaction that is open anywhere holds up all
			config: "{watermill-postgres: {url: %q, poll_interval: 20ms}}",
			open: func(url string) (transport.Transport, error) {
				return watermill.Postgres(watermill.SQLOptions{URL: config.NewSecret(url), PollInterval: 20 * time.Millisecond})
			},
			cases:    sequential,
			inFlight: 1,
			engineCannot: map[string]string{
				"H1_drain": oneInFlight, "D5_shutdown_no_failure": oneInFlight,
			},
		},
		"watermill-mysql": {
			broker: "mariadb",
			config: "{watermill-mysql: {url: %q, poll_interval: 20ms}}",
			open: func(url string) (transport.Transport, error) {
				return watermill.MySQL(watermill.SQLOptions{URL: config.NewSecret(url), PollInterval: 20 * time.Millisecond})
			},
			cases:    sequential,
			inFlight: 1,
			engineCannot: map[string]string{
				"H1_drain": oneInFlight, "D5_shutdown_no_failure": oneInFlight,
			},
		},
	}
}

func hosts(url string) []string { return strings.Split(strings.TrimPrefix(url, "kafka://"), ",") }

// TestConformance_kinds runs transporttest on each kind. What fails is listed,
// with its reason, and the list is held against what has failed.
func TestConformance_kinds(t *testing.T) {
	t.Parallel()
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := k.url(t)
			cases := k.cases
			if !soaking() {
				cases = slices.Concat(required, k.required)
			}
			report := transporttest.Check(t.Context(), transporttest.Options{
				Short: !soaking(), Merges: merges(k.broker),
				Patience: 40 * time.Second, Takeover: 3 * time.Second, Parallel: cmp.Or(k.parallel, 2),
				Open: func(transporttest.TB) transporttest.Broker {
					b := transporttest.Broker{Transport: func(tb transporttest.TB) transport.Transport {
						tr, err := k.open(url)
						require.NoError(tb, err)
						return tr
					}}
					if k.foreign != nil {
						b.Foreign = func(tb transporttest.TB, topic, group string) int { return k.foreign(tb, url, topic, group) }
					}
					return b
				},
				Lacks: map[string]string{"Kill": "a Subscriber cannot be left without its knowing"},
			}, cases...)
			t.Logf("transport conformance\n%v", report)
			for _, res := range report {
				if why := k.cannot[res.Case]; why != "" {
					require.True(t, res.Failed, "%s passes: it is listed as %q", res.Case, why)
					continue
				}
				require.Empty(t, res.Failures, res.Case)
			}
			for _, name := range slices.Concat(required, k.required) {
				at := slices.IndexFunc(report, func(r transporttest.Result) bool { return r.Case == name })
				require.True(t, at >= 0 && report[at].Skip == "", "%s is not run", name)
			}
		})
	}
}

func merges(broker string) string {
	if broker == "kafka" {
		return "._"
	}
	return ""
}

// foreignRecords are what other programs write to Kafka.
func foreignRecords(tb transporttest.TB, url, topic, _ string) int {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(hosts(url), c)
	require.NoError(tb, err)
	h := func(k, v string) sarama.RecordHeader { return sarama.RecordHeader{Key: []byte(k), Value: []byte(v)} }
	records := []*sarama.ProducerMessage{
		{},
		{Value: sarama.StringEncoder("")},
		{Value: sarama.StringEncoder("x"), Key: sarama.StringEncoder("")},
		{Value: sarama.StringEncoder("\xff\x00"), Key: sarama.StringEncoder("\x00"), Headers: []sarama.RecordHeader{h("a", "1"), h("a", "2"), h("", "")}},
		{Headers: []sarama.RecordHeader{{Key: []byte("null")}}},
		{Headers: []sarama.RecordHeader{h("ce_id", "1"), h("ce_source", topic)}},
		{Headers: []sarama.RecordHeader{h("_watermill_message_uuid", "")}},
	}
	for _, r := range records {
		r.Topic = topic
		_, _, err := p.SendMessage(r)
		require.NoError(tb, err)
	}
	require.NoError(tb, p.Close())
	return len(records)
}

// foreignMessages are what other programs write to RabbitMQ.
func foreignMessages(tb transporttest.TB, url, topic, _ string) int {
	conn, err := amqp.Dial(url)
	require.NoError(tb, err)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	require.NoError(tb, err)
	require.NoError(tb, ch.Confirm(false))
	messages := []amqp.Publishing{
		{},
		{Body: []byte("x")},
		{MessageId: "one of theirs"},
		{ContentType: "application/json", ContentEncoding: "gzip", Body: []byte("{")},
		{Headers: amqp.Table{"bool": true, "int": int32(1), "long": int64(2), "float": 1.5, "nil": nil, "bytes": []byte{0}, "time": time.Unix(1, 0)}},
		{Headers: amqp.Table{"table": amqp.Table{"a": []any{int16(1), amqp.Table{}}}, "array": []any{}, "decimal": amqp.Decimal{Scale: 1, Value: 5}}},
		{Headers: amqp.Table{"_watermill_message_uuid": int32(5)}},
		{Headers: amqp.Table{"cloudEvents:id": "1", "cloudEvents:source": "/" + topic}},
	}
	for _, m := range messages {
		confirm, err := ch.PublishWithDeferredConfirmWithContext(tb.Context(), topic, "", true, false, m)
		require.NoError(tb, err)
		require.True(tb, confirm.Wait())
	}
	return len(messages)
}

// world is a topic with a group on one kind.
type world struct {
	*testing.T

	tr           transport.Transport
	topic, group string
	pub          transport.Producer
}

// eachKind runs a test on each kind, with a topic of its own.
func eachKind(t *testing.T, fn func(w *world)) {
	t.Helper()
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, err := k.open(brokertest.URL(t, k.broker))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, tr.Close(context.Background())) })
			w := &world{T: t, tr: tr, topic: "t" + unique(), group: "g" + unique()}
			require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: w.topic, Group: w.group}))
			w.pub, err = tr.OpenProducer(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, w.pub.Close(context.Background())) })
			fn(w)
		})
	}
}

// join opens a consumer; leave closes it.
func (w *world) join() (c transport.Consumer, leave func()) {
	w.Helper()
	c, err := w.tr.OpenConsumer(w.Context(), transport.ConsumerConfig{
		Name: "c", Topics: []string{w.topic}, Group: w.group, Order: cmp.Or(w.tr.Capabilities().DefaultOrder(), transport.OrderNone),
		Prefetch: 128, PrefetchBytes: 1 << 20, Span: 1 << 20, Base: context.WithoutCancel(w.Context()),
	})
	require.NoError(w, err)
	closed := false
	leave = func() {
		if !closed {
			closed = true
			require.NoError(w, c.Close(context.Background()))
		}
	}
	w.Cleanup(leave)
	return c, leave
}

// next waits for one delivery.
func (w *world) next(c transport.Consumer) *transport.Delivery {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 60*time.Second) // another test's transaction may hold up PostgreSQL
	defer cancel()
	ds, err := c.Receive(ctx, 1, 1<<20)
	require.NoError(w, err)
	return ds[0]
}
