package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

// outcomes are what runs came to: consumer, id, outcome and attempt.
type outcomes struct {
	prefix string // of the ids of this test

	mu   sync.Mutex
	list []string
}

func (o *outcomes) note(h message.HandlerFunc, id func(*message.Message) string) message.HandlerFunc {
	failed := map[string]bool{}
	return func(m *message.Message) ([]*message.Message, error) {
		id, ours := strings.CutPrefix(id(m), o.prefix)
		if !ours {
			return nil, nil
		}
		a := transport.AttemptFrom(m.Context())
		transport.OnSettle(a, func(_ context.Context, out transport.Outcome) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.list = append(o.list, fmt.Sprintf("%s %s %s %d", a.Consumer(), id, out, a.Number()))
			return nil
		})
		o.mu.Lock()
		first := !failed[id]
		failed[id] = true
		o.mu.Unlock()
		if strings.HasPrefix(id, "flaky") && first {
			return nil, errors.New("at first")
		}
		return h(m)
	}
}

func (o *outcomes) sorted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(slices.Values(o.list))
}

// TestSameOutcomeOnEveryBroker runs the file as it is on nine brokers, but for
// its broker line, and a name of its own on brokers that are shared.
func TestSameOutcomeOnEveryBroker(t *testing.T) {
	t.Parallel()
	for kind, broker := range map[string]string{
		"sqlite": "", "postgres": "postgres", "mysql": "mariadb", "kafka": "kafka", "amqp": "rabbitmq",
		"watermill-kafka": "kafka", "watermill-amqp": "rabbitmq", "watermill-postgres": "postgres", "watermill-mysql": "mariadb",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := "sqlite://" + t.TempDir() + "/orders.db"
			if broker != "" {
				_, rest, _ := strings.Cut(brokertest.URL(t, broker), "://")
				url = kind + "://" + rest
			}
			run(t, url)
		})
	}
}

func run(t *testing.T, url string) {
	t.Helper()
	o := &outcomes{prefix: fmt.Sprintf("%08x-", rand.Uint32())}
	field := func(name string) func(*message.Message) string {
		return func(m *message.Message) string {
			var body map[string]any
			_ = json.Unmarshal(m.Payload, &body) // what is not ours may be anything
			id, _ := body[name].(string)
			return id
		}
	}
	w, err := worker.New(builtin.All(),
		worker.Config(config.Options{Files: []string{"worker.yaml"}, Set: []string{
			"broker=" + url, "name=orders-" + o.prefix + "x", "consumers.charge.start=latest", "consumers.receipt.start=latest",
		}}),
		worker.Handle("charge", o.note(handlers.JSON(charge), field("id"))),
		worker.Handle("receipt", o.note(handlers.JSON(receipt), field("order"))),
	)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Router().Ready():
	case err := <-ended:
		require.NoError(t, err)
	}

	pub := pubsub.NewPublisher(w.Transport(""))
	var want []string
	for i := range 20 {
		id, total := fmt.Sprint([]string{"good", "flaky", "bad"}[i%3], i), 100
		switch {
		case strings.HasPrefix(id, "bad"):
			total = 0
			want = append(want, "charge "+id+" dead 1")
		case strings.HasPrefix(id, "flaky"):
			want = append(want, "charge "+id+" retried 1", "charge "+id+" handled 2", "receipt "+id+" retried 1", "receipt "+id+" handled 2")
		default:
			want = append(want, "charge "+id+" handled 1", "receipt "+id+" handled 1")
		}
		body, err := json.Marshal(OrderPlaced{ID: o.prefix + id, Total: int64(total)})
		require.NoError(t, err)
		require.NoError(t, pub.Publish("orders.placed", message.NewMessage(o.prefix+id, body)))
	}
	slices.Sort(want)
	require.Eventually(t, func() bool { return len(o.sorted()) >= len(want) }, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, pub.Close())
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, w.Close(context.WithoutCancel(ctx)))
	require.Equal(t, want, o.sorted())
}
