package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

func consumerOf(t *testing.T, options string) *config.Consumer {
	t.Helper()
	cfg, err := config.Load(config.Options{Data: []config.Data{{
		Name: "test", Text: []byte("broker: memory://x\nconsumers:\n  c:\n    handler: log\n" + options),
	}}})
	require.NoError(t, err)
	return &cfg.Consumers[0]
}

func TestPolicyOfDefaults(t *testing.T) {
	t.Parallel()
	p, err := policyOf(consumerOf(t, "    topic: t\n"))
	require.NoError(t, err)
	require.Equal(t, 5, p.Retry.Attempts())
	p.Retry = nil
	require.Equal(t, transport.Policy{
		Topics: []string{}, Group: "worker.c", Start: transport.StartEarliest,
		Concurrency: 8, Prefetch: 64, PrefetchBytes: 16 << 20, Timeout: 20 * time.Second, MaxPark: 10 * time.Second,
		DeadLetter: transport.DeadLetter{Mode: transport.DeadToTopic, Topic: transport.DefaultDeadTopic},
	}, p)
}

func TestPolicyOf(t *testing.T) {
	t.Parallel()
	p, err := policyOf(consumerOf(t, `
    topics: [a, b]
    group: g
    start: latest
    concurrency: 2
    prefetch: 3
    prefetch_bytes: 1MiB
    timeout: 1s
    retry: {attempts: -1, initial_interval: 1s, max_interval: 3s, jitter: 0, order: overtake, max_park: 1m}
    dead_letter: drop
    ordered_by: {key: payload.customer.id}
    ack: on_receive
    publish_to: out
`))
	require.NoError(t, err)
	require.Equal(t, transport.Unlimited, p.Retry.Attempts())
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
		[]time.Duration{p.Retry.Wait(1), p.Retry.Wait(2), p.Retry.Wait(3)}, "jitter 0 is none")
	for payload, want := range map[string]string{`{"customer":{"id":7}}`: "7", `{"customer":{"id":"x"}}`: "x", `{}`: "", `nonsense`: "", ``: ""} {
		require.Equal(t, want, p.OrderKey(&transport.Delivery{Payload: []byte(payload)}), payload)
	}
	p.Retry, p.OrderKey = nil, nil
	require.Equal(t, transport.Policy{
		Topics: []string{"b"}, Group: "g", Start: transport.StartLatest,
		Concurrency: 2, Prefetch: 3, PrefetchBytes: 1 << 20, Timeout: time.Second, MaxPark: time.Minute,
		Order: transport.OrderKey, RetryOrder: transport.RetryOvertake,
		DeadLetter: transport.DeadLetter{Mode: transport.DeadDrop}, AckOnReceive: true, PublishTo: "out",
	}, p)

	p, err = policyOf(consumerOf(t, "    topic: t\n    dead_letter: block\n    ordered_by: {key: metadata.tenant}\n"))
	require.NoError(t, err)
	require.Equal(t, transport.DeadBlock, p.DeadLetter.Mode)
	require.Equal(t, "acme", p.OrderKey(&transport.Delivery{Headers: transport.Headers{{Name: "tenant", Value: "acme"}}}))
}
