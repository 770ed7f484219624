package runtimetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/runtimetest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct {
	ID    string `json:"id"`
	Total int64  `json:"total"`
}

type charged struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"`
}

var errBusy = errors.New("bank is busy")

// bank is what charge needs, as a test wants it.
type bank struct {
	busy    bool
	charges atomic.Int64
}

func (b *bank) charge(ctx context.Context, o order) error {
	switch {
	case o.Total < 0:
		return handlers.Permanent(errors.New("total must be positive"))
	case o.Total == 0:
		return handlers.Skip("nothing to pay")
	case b.busy:
		return errBusy
	}
	b.charges.Add(1)
	return handlers.Emit(ctx, "payments.charged", charged{o.ID, o.Total})
}

// parts is what main would give to worker.Main.
func parts(b *bank) []worker.Option {
	return []worker.Option{
		builtin.All(),
		worker.Handle("charge", handlers.JSON(b.charge)),
		worker.Handle("receipt", handlers.JSONOut(func(_ context.Context, c charged) (string, error) {
			return "receipt of " + c.Order, nil
		})),
	}
}

// TestFile: the file of production runs as it stands, over several brokers.
func TestFile(t *testing.T) {
	t.Parallel()
	b := &bank{}
	runtimetest.Run(t, runtimetest.File("testdata/worker.yaml", parts(b)...), func(k *runtimetest.Kit) {
		k.Publish("orders.placed", order{"o-1", 500})
		k.ExpectHandled()
		k.ExpectEmitted("payments.charged", charged{"o-1", 500})
		k.ExpectEmitted("receipts", "receipt of o-1")
		require.Empty(k, k.Dead())
		require.Equal(k, int64(1), k.Status("book").Count(transport.Handled), "a message went from broker to broker")
	})
}

// TestRetried: waits are the file's, to the millisecond.
func TestRetried(t *testing.T) {
	t.Parallel()
	b := &bank{}
	runtimetest.Run(t, runtimetest.File("testdata/worker.yaml", parts(b)...), func(k *runtimetest.Kit) {
		b.busy = true
		m := k.Publish("orders.placed", order{"o-1", 500})
		require.Equal(k, time.Second, k.ExpectRetried(m))
		require.Equal(k, 2*time.Second, k.ExpectRetried(m))
		require.Equal(k, 1, k.Status("charge").Parked)
		k.ExpectEmitted("payments.charged")

		b.busy = false
		k.Advance(2 * time.Second)
		k.ExpectHandled(m)
		k.ExpectEmitted("payments.charged", charged{"o-1", 500})
		require.Equal(k, int64(1), b.charges.Load())
	})
}

// TestDead: attempts used up, a permanent error, a body that does not decode.
func TestDead(t *testing.T) {
	t.Parallel()
	b := &bank{}
	b.busy = true
	runtimetest.Run(t, runtimetest.File("testdata/worker.yaml", parts(b)...), func(k *runtimetest.Kit) {
		busy := k.Publish("orders.placed", order{"o-1", 500})
		wrong := k.Publish("orders.placed", order{"o-2", -1})
		garbled := k.Publish("orders.placed", []byte(`{"id": "o-3", "total": "many"}`))
		k.ExpectDead(busy, wrong, garbled)

		dead := map[string]runtimetest.DeadLetter{}
		for _, d := range k.Only("charge").Dead() {
			dead[d.ID] = d
		}
		require.Equal(k, transport.ReasonExhausted, dead[busy.ID].Reason)
		require.Equal(k, 3, dead[busy.ID].Attempts)
		require.Contains(k, dead[busy.ID].Error, errBusy.Error())
		require.Equal(k, transport.ReasonPermanent, dead[wrong.ID].Reason)
		require.Equal(k, transport.ReasonUndecodable, dead[garbled.ID].Reason)
		require.Equal(k, "orders.placed", dead[garbled.ID].Topic)
		require.Equal(k, "charge", dead[garbled.ID].Consumer)
		require.JSONEq(k, `{"id": "o-3", "total": "many"}`, string(dead[garbled.ID].Message.Payload))
		require.Empty(k, k.Only("book").Dead())
	})
}

// TestSkippedAndDuplicate: the same order twice is charged once, whether the
// second comes later or while the first is at it.
func TestSkippedAndDuplicate(t *testing.T) {
	t.Parallel()
	b := &bank{}
	runtimetest.Run(t, runtimetest.File("testdata/worker.yaml", parts(b)...), func(k *runtimetest.Kit) {
		k.ExpectSkipped(k.Publish("orders.placed", order{"o-0", 0}))
		first := k.Publish("orders.placed", order{"o-1", 500})
		again := k.Publish("orders.placed", order{"o-1", 500})
		k.ExpectHandled(first)
		k.ExpectDuplicate(again)
		k.ExpectDuplicate(k.Publish("orders.placed", order{"o-1", 500}, handlers.Key("another")))
		require.Equal(k, int64(1), b.charges.Load())
	})
}

// TestFailNext: failures that the handler knows nothing of.
func TestFailNext(t *testing.T) {
	t.Parallel()
	b := &bank{}
	runtimetest.Run(t, runtimetest.File("testdata/worker.yaml", parts(b)...), func(k *runtimetest.Kit) {
		k.Only("receipt").FailNext(1, handlers.RetryAfter(errBusy, time.Hour))
		k.FailNext(2, errBusy)
		m := k.Publish("orders.placed", order{"o-1", 500})
		k.ExpectRetried(m)
		k.ExpectRetried(m)
		began := time.Now()
		k.ExpectHandled()
		require.Greater(k, time.Since(began), time.Hour, "the receipt waited too")
		require.Equal(k, int64(1), b.charges.Load())
	})
}

// TestFaults: a dead letter that cannot be written keeps the message; a lost
// connection spends no attempt.
func TestFaults(t *testing.T) {
	t.Parallel()
	b := &bank{}
	runtimetest.Run(t, runtimetest.File("testdata/worker.yaml", parts(b)...), func(k *runtimetest.Kit) {
		m := k.Publish("orders.placed", order{"o-1", -1})
		mend := k.Broker("").Inject(memory.Fault{Op: memory.OpPublish, Err: errors.New("disk full")})
		k.Advance(time.Hour)
		require.Contains(k, k.Timeline(), "disk full")
		mend()
		k.ExpectDead(m)

		m = k.Publish("orders.placed", order{"o-2", 5})
		k.Broker("").Cut(errors.New("connection reset"), nil)
		k.ExpectHandled(m)
	})
}

// TestSeveralGroups: a message is what each of its consumers makes of it.
func TestSeveralGroups(t *testing.T) {
	t.Parallel()
	file := runtimetest.YAML(`
broker: kafka://nowhere:9092
consumers:
  good: {topic: in, handler: discard}
  bad: {topic: in, handler: bad}
  other: {topics: [elsewhere], handler: discard}
`, builtin.All(), worker.Handle("bad", func(*message.Message) ([]*message.Message, error) {
		return nil, handlers.Permanent(errBusy)
	}))
	runtimetest.Run(t, file, func(k *runtimetest.Kit) {
		m := k.Publish("in", "x")
		k.Only("good").ExpectHandled(m)
		k.Only("bad").ExpectDead(m)
	})
}

// TestConfig: references are found where the test says.
func TestConfig(t *testing.T) {
	t.Parallel()
	o := config.Options{
		Data:      []config.Data{{Name: "w.yaml", Text: []byte("\ufeffbroker: ${NOT_ASKED_FOR:?}\nconsumers: {c: {topic: \"${TOPIC:?}\", handler: discard}}")}},
		Set:       []string{"consumers.c.concurrency=2"},
		LookupEnv: func(name string) (string, bool) { return "from.env", name == "TOPIC" },
	}
	runtimetest.Run(t, runtimetest.Config(o, builtin.All()), func(k *runtimetest.Kit) {
		k.ExpectHandled(k.Publish("from.env", "x"))
	})
}
