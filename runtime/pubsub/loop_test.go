package pubsub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/transporttest"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

// loop makes a transport of the Pub/Sub of a transport.
func loop(bad func(message.Publisher, message.Subscriber) (message.Publisher, message.Subscriber)) transporttest.Options {
	return transporttest.Options{
		Open: func(transporttest.TB) transporttest.Broker {
			b := memory.NewBroker(memory.Options{})
			return transporttest.Broker{Transport: func(tb transporttest.TB) transport.Transport {
				tr := b.Transport()
				p, s := pubsub.NewPublisher(tr), pubsub.NewSubscriber(tr, "g")
				s.Order, s.Concurrency, s.Drain = transport.OrderNone, 256, 10*time.Millisecond
				tb.Cleanup(func() {
					require.NoError(tb, p.Close())
					require.NoError(tb, s.Close())
				})
				var pub message.Publisher = p
				var sub message.Subscriber = s
				if bad != nil {
					pub, sub = bad(pub, sub)
				}
				return watermill.Transport("loop", sub, pub)
			}}
		},
		Short: true, Patience: 5 * time.Minute,
	}
}

// What goes through both faces, one after the other, is what was published.
func TestLoop(t *testing.T) {
	t.Parallel()
	cases := []string{"A1_no_loss", "A2_fidelity", "A6_exclusive", "A8_codec", "B4_pause", "C1_release", "C7_settle_twice", "D5_context", "H1_leave", "H4_receive_ends"}
	synctest.Test(t, func(t *testing.T) {
		report := transporttest.Check(t.Context(), loop(nil), cases...)
		require.Len(t, report, len(cases))
		for _, res := range report {
			require.Empty(t, res.Skip, res.Case)
			require.Empty(t, res.Failures, res.Case)
		}
	})
}

// TestKnownBad has what released Pub/Subs do, or have done, on the stage where
// a good one passes: the case named for each must fail.
func TestKnownBad(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		caught string
		bad    func(message.Publisher, message.Subscriber) (message.Publisher, message.Subscriber)
	}{
		"publishes nothing and says nil": {"A1_no_loss", func(_ message.Publisher, s message.Subscriber) (message.Publisher, message.Subscriber) {
			return liar{}, s
		}},
		"acks what it has handed out when it ends": {"A2_fidelity", through(func(ctx context.Context, m *message.Message, _ func(*message.Message)) {
			context.AfterFunc(ctx, func() { m.Ack() })
		})},
		"acks what it hands out": {"H1_leave", through(func(_ context.Context, m *message.Message, _ func(*message.Message)) {
			m.Ack()
		})},
		"hands out an empty message that nobody has sent": {"A1_no_loss", through(func(_ context.Context, m *message.Message, send func(*message.Message)) {
			if m.UUID == "0-0" {
				send(&message.Message{})
			}
		})},
		"hands out again what is not answered soon": {"A6_exclusive", through(func(_ context.Context, m *message.Message, send func(*message.Message)) {
			send(m.Copy())
		})},
		"loses binary headers": {"A2_fidelity", through(func(_ context.Context, m *message.Message, _ func(*message.Message)) {
			delete(m.Metadata, "binary")
		})},
		"takes nil for empty": {"A2_fidelity", through(func(_ context.Context, m *message.Message, _ func(*message.Message)) {
			m.Payload = append(message.Payload{}, m.Payload...)
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				report := transporttest.Check(t.Context(), loop(of.bad), of.caught)
				require.Equal(t, []string{of.caught}, report.Failed())
			})
		})
	}
}

type liar struct{}

func (liar) Publish(string, ...*message.Message) error { return nil }
func (liar) Close() error                              { return nil }

// meddler does something to each message on its way to the reader.
type meddler struct {
	message.Subscriber

	meddle func(ctx context.Context, m *message.Message, send func(*message.Message))
}

func through(meddle func(context.Context, *message.Message, func(*message.Message))) func(message.Publisher, message.Subscriber) (message.Publisher, message.Subscriber) {
	return func(p message.Publisher, s message.Subscriber) (message.Publisher, message.Subscriber) {
		return p, meddler{s, meddle}
	}
}

func (d meddler) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := d.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	send := func(m *message.Message) {
		select {
		case out <- m:
		case <-ctx.Done():
		}
	}
	go func() {
		for m := range in {
			d.meddle(ctx, m, send)
			send(m)
		}
		close(out)
	}()
	return out, nil
}
