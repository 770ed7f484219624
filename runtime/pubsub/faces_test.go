package pubsub_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// Why a test of Watermill's suite cannot be run on a face.
const (
	noTotalOrder = "many messages are in flight: only those of one key, or of one partition, wait for each other"
	noBroker     = "there is no broker process that could be restarted"
)

// parallel is the face that a subscriber has by default: many in flight.
func parallel() face {
	return face{
		features: tests.Features{ConsumerGroups: true, Persistent: true, NewSubscriberReceivesOldMessages: true},
		lacks:    map[string]string{"TestNoAck": noTotalOrder, "TestPublishSubscribeInOrder": noTotalOrder},
	}
}

// ordered is the face of one partition, one message at a time.
func ordered() face {
	return face{
		features: tests.Features{ConsumerGroups: true, Persistent: true, NewSubscriberReceivesOldMessages: true, GuaranteedOrder: true},
		lacks:    map[string]string{},
	}
}

// local is a face without a broker process.
func (f face) local() face {
	f.lacks["TestReconnect"] = noBroker
	return f
}

// on opens the face on connections that connect makes; each is closed with its test.
func (f face) on(connect func(t *testing.T) transport.Transport) face {
	order := transport.Order("")
	if f.features.GuaranteedOrder {
		order = transport.OrderPartition
	}
	f.open = func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		tr := connect(t)
		sub := pubsub.NewSubscriber(tr, group)
		sub.Order = order
		sub.Drain = 200 * time.Millisecond // the suite leaves messages unanswered
		if f.features.GuaranteedOrder {    // and nacks one 300 times, with patience for 15s each time
			sub.Backoff = transport.Backoff{InitialInterval: 5 * time.Millisecond, MaxInterval: 100 * time.Millisecond}
		}
		pub := pubsub.NewPublisher(tr)
		pub.Timeout = 5 * time.Second // it tries again by itself
		t.Cleanup(func() {            // the suite forgets some
			require.NoError(t, pub.Close())
			require.NoError(t, sub.Close())
			require.NoError(t, tr.Close(context.Background()))
		})
		return pub, sub
	}
	return f
}

func TestConformance_memory(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		face       face
		partitions int
	}{"parallel": {parallel(), 4}, "ordered": {ordered(), 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := memory.NewBroker(memory.Options{Partitions: of.partitions})
			of.face.local().on(func(*testing.T) transport.Transport { return b.Transport() }).exercise(t)
		})
	}
}

func TestConformance_sqlite(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		face       face
		partitions int
	}{"parallel": {parallel(), 8}, "ordered": {ordered(), 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "worker.db")
			of.face.local().on(func(t *testing.T) transport.Transport {
				t.Helper()
				tr, err := sql.OpenSQLite(sql.Options{Path: path, Partitions: of.partitions, Poll: 20 * time.Millisecond})
				require.NoError(t, err)
				return tr
			}).exercise(t)
		})
	}
}
