package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := load(t, five)
	require.Equal(t, "payments", c.Name)
	require.Equal(t, TopologyDeclare, c.Topology)
	require.Equal(t, "25s", c.DrainTimeout.String())
	require.Equal(t, "sqlite", c.Broker.Kind)
	require.Equal(t, "sqlite://worker.db", c.Broker.URL.Reveal())
	charge := c.Consumers[0]
	require.Equal(t, []string{"orders.placed"}, charge.Topics)
	require.Equal(t, "payments.charge", charge.Group)
	require.Equal(t, StartEarliest, charge.Start)
	require.Equal(t, []int{8, 64}, []int{charge.Concurrency, charge.Prefetch})
	require.Equal(t, "16MiB", charge.PrefetchBytes.String())
	require.Equal(t, 20*time.Second, charge.Timeout.Std())
	require.Equal(t, Retry{5, Duration(200 * time.Millisecond), Duration(30 * time.Second), 2, 0.5, "", Duration(10 * time.Second)}, charge.Retry)
	require.Equal(t, "orders.placed--payments.charge--dead", charge.DeadLetter.Topic("orders.placed", charge.Group))
	require.Equal(t, AckOnSuccess, charge.Ack)
	require.Nil(t, charge.Dedup)
	require.True(t, charge.PublishTo.IsZero())
	require.Equal(t, "worker.c", load(t, "broker: memory\nconsumers: {c: {topic: t, handler: log}}\n").Consumers[0].Group)
}

func TestInheritance(t *testing.T) {
	t.Parallel()
	c := load(t, `
consumers:
  own:
    topics: [a, b]
    handler: log
    concurrency: 16
    retry: {attempts: -1}
    dedup: {key: payload.id}
    use: [own]
    ordered_by: none
    publish_to: {broker: other, topic: out}
  inherits: {topic: t, handler: log, prefetch: 5, dedup: {}}
  off: {topic: t, handler: log, dedup: off, dead_letter: drop, group: g}
broker: memory
brokers: {other: memory}
defaults:
  concurrency: 4
  retry: {max_interval: 1m, jitter: 0}
  dedup: {window: 168h}
  use: [one, two]
  ordered_by: {key: payload.customer}
`)
	own, inherits, off := c.Consumers[0], c.Consumers[1], c.Consumers[2]
	require.Equal(t, []int{16, 128}, []int{own.Concurrency, own.Prefetch})
	require.Equal(t, Unlimited, own.Retry.Attempts)
	require.Equal(t, "1m", own.Retry.MaxInterval.String())
	require.Equal(t, Dedup{"payload.id", Duration(168 * time.Hour)}, *own.Dedup)
	require.Len(t, own.Use, 1)
	require.Equal(t, OrderedBy{Mode: OrderedByNone}, own.OrderedBy)
	require.Equal(t, PublishTo{"other", "out"}, own.PublishTo)

	require.Equal(t, []int{4, 5}, []int{inherits.Concurrency, inherits.Prefetch})
	require.Equal(t, Dedup{"id", Duration(168 * time.Hour)}, *inherits.Dedup)
	require.Len(t, inherits.Use, 2)
	require.Equal(t, OrderedBy{Mode: OrderedByKey, Key: "payload.customer"}, inherits.OrderedBy)
	require.NotSame(t, c.Defaults.Dedup, inherits.Dedup)

	require.Nil(t, off.Dedup)
	require.Empty(t, off.DeadLetter.Topic("t", "g"))
}

func TestLongestRedelivery(t *testing.T) {
	t.Parallel()
	retry := Retry{Attempts: 5, InitialInterval: Duration(200 * time.Millisecond), MaxInterval: Duration(30 * time.Second), Multiplier: 2, Jitter: 0.5}
	require.Equal(t, "1m44.5s", retry.Longest(Duration(20*time.Second)).String()) // 1.5 × (0.2+0.4+0.8+1.6) + 5 × 20
	retry.Attempts = Unlimited
	require.Equal(t, "1m5s", retry.Longest(Duration(20*time.Second)).String())
	retry.Attempts, retry.MaxInterval, retry.Jitter = 4, Duration(300*time.Millisecond), 0
	require.Equal(t, "1.2s", retry.Longest(Duration(100*time.Millisecond)).String()) // 0.2+0.3+0.3 + 4 × 0.1
	retry.Attempts, retry.MaxInterval = 1_000_000, Duration(math.MaxInt64)
	require.Positive(t, retry.Longest(Duration(math.MaxInt64)))
}
