package memory_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

func conformance(o memory.Options) transporttest.Options {
	return transporttest.Options{
		Open: func(transporttest.TB) transporttest.Broker {
			b := memory.NewBroker(o)
			return transporttest.Broker{
				Transport: func(transporttest.TB) transport.Transport { return b.Transport() },
				Kill: func(_ transporttest.TB, _ transport.Consumer, cfg transport.ConsumerConfig) {
					b.Cut(errors.New("killed"), func(c transport.ConsumerConfig) bool { return c.Name == cfg.Name })
				},
				Foreign: func(tb transporttest.TB, topic, _ string) int {
					p, err := b.Transport().OpenProducer(tb.Context())
					require.NoError(tb, err)
					strangers := []*message.Message{
						{},
						{},
						{Payload: []byte{}},
						{Payload: []byte("x")},
						{UUID: "with an id"},
						{Metadata: message.Metadata{"": "", "\x00": "\xff"}},
					}
					require.NoError(tb, p.Publish(tb.Context(), topic, strangers...))
					return len(strangers)
				},
			}
		},
		Takeover: time.Second,
		Lacks: map[string]string{
			"PublishLater": "a publish is one step",
			"Oversize":     "there is no limit",
			"*":            "the broker is the process",
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	report := transporttest.Run(t, conformance(memory.Options{}))
	for name, why := range report.Skipped() {
		require.NotContains(t, why, "no hook", name)
		if strings.HasPrefix(why, "capability") {
			require.Contains(t, []string{"I1_reopen", "I1_restart", "I2_crash"}, name)
		}
	}
}

// A broker that can do less is skipped for what it cannot do, and keeps the rest.
func TestConformance_emulated(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]memory.Options{
		"log": {Log: true, Capabilities: caps(func(c *transport.Capabilities) {
			c.ReleaseInOrder, c.DurableDelay, c.Attempts = false, false, transport.KeepProcess
		})},
		"queue": {Capabilities: caps(func(c *transport.Capabilities) {
			c.KeyOrder, c.Attempts, c.StableCoordinates = transport.ScopeWorker, transport.KeepAfterDelay, false
			c.ByteWindow, c.ReleaseInOrder, c.Depth = false, false, false
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				report := transporttest.Check(t.Context(), conformance(o))
				t.Log(report)
				for _, res := range report {
					require.Empty(t, res.Failures, res.Case)
				}
			})
		})
	}
}
