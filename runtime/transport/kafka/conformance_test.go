package kafka_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// session is as short as the test brokers allow, so that the killed are missed soon.
const session = 3 * time.Second

func options(url string) kafka.Options {
	o, err := kafka.ParseURL(url)
	if err != nil {
		panic(err)
	}
	o.SessionTimeout = session
	o.MetadataAge = time.Second
	o.Partitions = 4
	return o
}

func open(tb transporttest.TB, o kafka.Options) *kafka.Transport {
	tr, err := kafka.New(o, nil)
	require.NoError(tb, err)
	return tr
}

// strangers are records as other programs write them.
func strangers(topic string) []*kgo.Record {
	header := func(k string, v []byte) kgo.RecordHeader { return kgo.RecordHeader{Key: k, Value: v} }
	return []*kgo.Record{
		{Topic: topic},
		{Topic: topic, Value: []byte{}},
		{Topic: topic, Key: []byte{}, Value: []byte("empty key")},
		{Topic: topic, Key: []byte("k")},
		{Topic: topic, Key: []byte("\xff\x00"), Value: []byte("\xff")},
		{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{header("", nil)}},
		{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{header("a", []byte("1")), header("a", []byte("2")), header("a", nil)}},
		{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{header("\xff", []byte("\xfe")), header("nul", []byte{0})}},
		{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{header("ce_id", []byte("1")), header("ce_source", []byte("/shop"))}},
		{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{header("_watermill_message_uuid", nil)}},
	}
}

func suite(url string) transporttest.Options {
	return transporttest.Options{
		Open: func(tb transporttest.TB) transporttest.Broker {
			// The broker gives its own address, so all that is dialed goes through the proxy.
			proxy := brokertest.NewProxy(tb, strings.TrimPrefix(url, "kafka://"))
			return transporttest.Broker{
				Transport: func(tb transporttest.TB) transport.Transport {
					tr := open(tb, options(url))
					kafka.Through(tr, proxy.Addr())
					return tr
				},
				Link:     proxy,
				Oversize: 2 << 20,
				Kill: func(tb transporttest.TB, c transport.Consumer, _ transport.ConsumerConfig) {
					tb.Cleanup(kafka.Kill(c))
				},
				Foreign: func(tb transporttest.TB, topic, _ string) int {
					records := strangers(topic)
					cl, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(url, "kafka://")))
					require.NoError(tb, err)
					defer cl.Close()
					require.NoError(tb, cl.ProduceSync(tb.Context(), records...).FirstErr())
					return len(records)
				},
			}
		},
		Merges:   "._",
		Takeover: 2 * session,
		Short:    true, // LEAT_SOAK has more
		Lacks: map[string]string{
			"*":            "the broker is shared; TestCluster has brokers of its own",
			"PublishLater": "an open transaction holds back what was published after it",
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	report := transporttest.Run(t, suite(brokertest.URL(t, "kafka")))
	for name, why := range report.Skipped() {
		require.Regexp(t, "the broker is shared|transaction holds back|ReleaseInOrder|DurableDelay|Attempts", why, name)
	}
}

// TestConformance_alone has the cases that hurt the broker, on one of their own.
func TestConformance_alone(t *testing.T) {
	t.Parallel()
	brokers := brokertest.Start(t, "kafka")
	o := suite(brokers.URL("kafka"))
	inner := o.Open
	o.OnlyAlone = true
	o.Patience = time.Minute
	o.Open = func(tb transporttest.TB) transporttest.Broker {
		b := inner(tb)
		b.Restart = func(transporttest.TB) { brokers.Restart("kafka") }
		b.Crash = func(transporttest.TB) { brokers.Kill("kafka"); brokers.Up("kafka") }
		b.Freeze = func(transporttest.TB) func() {
			brokers.Pause("kafka")
			return func() { brokers.Resume("kafka") }
		}
		b.Disconnect = func(transporttest.TB) { b.Link.Cut(); b.Link.Heal() }
		return b
	}
	o.Lacks["*"] = "not here"
	require.Subset(t, []string{"D7_clock_jumps", "I10_denied"}, slices.Collect(maps.Keys(transporttest.Run(t, o).Skipped())))
}
