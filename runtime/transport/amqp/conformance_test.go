package amqp_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// place is a broker as the suites see it: own is nil where others use it too.
type place struct {
	url string
	own *brokertest.Brokers
}

// behind is a link to the broker that a case can cut, and the URL through it.
func (p place) behind(tb transporttest.TB) (*brokertest.Proxy, string) {
	tb.Helper()
	u, err := url.Parse(p.url)
	require.NoError(tb, err)
	proxy := brokertest.NewProxy(tb, u.Host)
	u.Host = proxy.Addr()
	return proxy, u.String()
}

func (p place) restart(transporttest.TB) { p.own.Restart("rabbitmq") }

// crash gives the broker a second: it writes down which quorum queues it has
// twice a second, and a younger one is there without a leader when it comes back.
func (p place) crash(tb transporttest.TB) {
	select {
	case <-time.After(time.Second):
	case <-tb.Context().Done():
	}
	p.own.Kill("rabbitmq")
	p.own.Up("rabbitmq")
}

func (p place) freeze(transporttest.TB) (thaw func()) {
	p.own.Pause("rabbitmq")
	return func() { p.own.Resume("rabbitmq") }
}

func (p place) ctl(args ...string) {
	p.own.Exec("rabbitmq", append([]string{"rabbitmqctl", "-q"}, args...)...)
}

func (p place) disconnect(transporttest.TB) { p.ctl("close_all_connections", "as a test asks") }

func (p place) deny(tb transporttest.TB) (allow func()) {
	p.ctl("change_password", "guest", "another")
	p.disconnect(tb)
	return func() { p.ctl("change_password", "guest", "guest") }
}

// ours are the options of every transport under test: a peer that is silent is
// found out soon, in six seconds. Fewer are too few for a busy machine.
func ours(o *amqp.Options) { o.Heartbeat = 4 * time.Second }

// suite presents one broker to all cases, each of which deletes what it has made.
func suite(p place, change ...func(*amqp.Options)) transporttest.Options {
	o := transporttest.Options{
		Open: func(tb transporttest.TB) transporttest.Broker {
			s := newSweeper(tb, p.url)
			link, through := p.behind(tb)
			b := transporttest.Broker{
				Transport: func(tb transporttest.TB) transport.Transport {
					return swept{open(tb, through, append(change, ours)...), s}
				},
				Kill:     func(_ transporttest.TB, c transport.Consumer, _ transport.ConsumerConfig) { amqp.Kill(c) },
				Foreign:  func(tb transporttest.TB, topic, _ string) int { return foreign(tb, p.url, topic) },
				Link:     link,
				Oversize: 17 << 20,
			}
			if p.own != nil {
				b.Restart, b.Crash, b.Freeze, b.Deny, b.Disconnect = p.restart, p.crash, p.freeze, p.deny, p.disconnect
			}
			return b
		},
		Takeover: 8 * time.Second,
		Short:    true, // LEAT_SOAK has more
		Lacks: map[string]string{
			"PublishLater": "it has no transactions over queues",
			"Jump":         "it looks at no clock of ours",
			"Idle":         "it ends no connection for that",
		},
	}
	if o.OnlyAlone = p.own != nil; !o.OnlyAlone {
		o.Lacks["*"] = "the broker is not ours alone"
	}
	return o
}

// lacking is what is skipped for what AMQP cannot do.
func lacking(report transporttest.Report) []string {
	var names []string
	for name, why := range report.Skipped() {
		if !strings.Contains(why, "not ours alone") {
			names = append(names, name+": "+why)
		}
	}
	slices.Sort(names)
	return names
}

func TestConformance(t *testing.T) {
	t.Parallel()
	p := place{url: brokertest.URL(t, "rabbitmq")}
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			report := transporttest.Run(t, suite(p, func(o *amqp.Options) { o.QueueType = kind }))
			require.Equal(t, cannot(), lacking(report))
		})
	}
}

// TestConformance_faults has the cases that stop, kill, freeze and deny a broker,
// on one of its own.
func TestConformance_faults(t *testing.T) {
	t.Parallel()
	own := brokertest.Start(t, "rabbitmq")
	p := place{own.URL("rabbitmq"), own}
	report := transporttest.Run(t, suite(p))
	require.Subset(t, cannot(), lacking(report))
}

// cannot is what a queue of RabbitMQ cannot do.
func cannot() []string {
	const scope, transactions = "capability KeyOrder: group is missing", "no PublishLater: it has no transactions over queues"
	return []string{
		"A5_late_group: capability History is missing",
		"B2_release_order: capability ReleaseInOrder is missing",
		"B3_order_after_close: " + scope,
		"B3_order_after_kill: " + scope,
		"B5_bytes: capability ByteWindow is missing",
		"D7_clock_jumps: no Jump: it looks at no clock of ours",
		"G4_commit_order: " + transactions,
		"G4_late_commit: " + transactions,
		"G4_late_group: " + transactions,
		"G4_late_groups: " + transactions,
		"G4_late_order: " + transactions,
		"G4_late_under_load: " + transactions,
		"H1_join: " + scope,
		"M6_idle: no Idle: it ends no connection for that",
	}
}

// foreign publishes what others may: no ids, and headers of every type.
func foreign(tb transporttest.TB, address, topic string) int {
	tb.Helper()
	c, err := amqp091.Dial(address)
	require.NoError(tb, err)
	defer c.Close()
	ch, err := c.Channel()
	require.NoError(tb, err)
	require.NoError(tb, ch.Confirm(false))
	all := []amqp091.Publishing{
		{},
		{Body: []byte("no id")},
		{MessageId: "by property", Body: []byte("x"), Headers: everyType()},
		{Headers: everyType(), Body: []byte{0, 0xff}},
		{Headers: amqp091.Table{"_watermill_message_uuid": int32(7), "leat_key": true}},
		{Headers: amqp091.Table{"": "empty name", "a\xff": "b\xfe"}},
		{Headers: amqp091.Table{"cloudEvents:id": "1", "cloudEvents:source": "/s"}, ContentType: "application/json", Priority: 3},
		{CorrelationId: "c", ReplyTo: "r", Type: "t", AppId: "a", UserId: "guest", Expiration: "600000", ContentEncoding: "gzip", Timestamp: time.Unix(1<<40, 0)},
	}
	for _, p := range all {
		d, err := ch.PublishWithDeferredConfirm(topic, "", true, false, p)
		require.NoError(tb, err)
		require.True(tb, d.Wait())
	}
	return len(all)
}

func everyType() amqp091.Table {
	return amqp091.Table{
		"bool": true, "byte": byte(200), "int8": int8(-3), "int16": int16(-300), "uint16": uint16(60000),
		"int32": int32(-70000), "uint32": uint32(4e9), "int64": int64(-1 << 60),
		"float32": float32(1.5), "float64": 2.25, "decimal": amqp091.Decimal{Scale: 2, Value: -5},
		"string": "text", "bytes": []byte{1, 0, 255}, "nil": nil, "time": time.Unix(1700000000, 0),
		"array":            []any{int32(1), "two", nil, amqp091.Table{"deep": []any{true}}},
		"table":            amqp091.Table{"a": int64(1), "b": amqp091.Table{"c": "d"}},
		"x-death":          []any{amqp091.Table{"queue": "q", "count": int64(3), "reason": "expired"}},
		"x-delivery-count": int64(5),
	}
}

// engine presents one broker to the cases of the engine.
func engine(p place) conformance.Options {
	o := conformance.Options{
		Open: func(tb conformance.TB) conformance.Broker {
			s := newSweeper(tb, p.url)
			link, through := p.behind(tb)
			b := conformance.Broker{
				Transport: func(tb conformance.TB) transport.Transport { return swept{open(tb, through, ours), s} },
				Config:    fmt.Sprintf("{amqp: {url: %q}}", through),
				Link:      link,
			}
			if p.own != nil {
				b.Restart, b.Crash, b.Freeze, b.Deny, b.Disconnect = p.restart, p.crash, p.freeze, p.deny, p.disconnect
			}
			return b
		},
		Worker:   "../../conformance/internal/testworker",
		Takeover: 8 * time.Second,
		Short:    true, // LEAT_SOAK has more
	}
	if o.OnlyAlone = p.own != nil; !o.OnlyAlone {
		o.Lacks = map[string]string{"*": "the broker is not ours alone"}
	}
	return o
}

// TestConformance_engine has the engine, and workers that are stopped and
// killed, on one broker.
func TestConformance_engine(t *testing.T) {
	t.Parallel()
	report := conformance.Run(t, engine(place{url: brokertest.URL(t, "rabbitmq")}))
	require.Equal(t, engineCannot(), lacking(report))
}

// TestConformance_engineFaults has those that hurt a broker, on one of its own.
func TestConformance_engineFaults(t *testing.T) {
	t.Parallel()
	own := brokertest.Start(t, "rabbitmq")
	report := conformance.Run(t, engine(place{own.URL("rabbitmq"), own}))
	require.Empty(t, lacking(report))
}

func engineCannot() []string {
	return []string{"B3_rebalanced: capability KeyOrder: group is missing", "B5_prefetch_bytes: capability ByteWindow is missing"}
}
