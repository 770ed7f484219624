package sql_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// While another program holds the lock, publishing waits, and nothing that
// was given up is written later.
func TestPublishWhileLocked(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	c, p := consume(t, tr), produce(t, tr)
	other := b.raw()
	_, err := other.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Publish(ctx, topicName, msg("given up", "", "")), context.DeadlineExceeded)
	done := make(chan error)
	go func() { done <- p.Publish(t.Context(), topicName, msg("waits", "", "")) }()
	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Equal(t, "waits", receive(t, c, 1)[0].ID)
	require.Equal(t, 1, b.count("leat_messages"))
}

// What another process publishes is found by polling.
func TestPublishElsewhere(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := consume(t, b.open())
	quiet(t, c, 50*time.Millisecond)
	p := produce(t, b.elsewhere())
	for i := range 5 {
		publish(t, p, fmt.Sprint(i), 1)
		settle(t, c, transport.Ack, receive(t, c, 1)...)
	}
}

func TestPublishErrors(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, err := b.open().OpenProducer(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Publish(t.Context(), topicName))
	err = p.Publish(t.Context(), "not legal", msg("a", "", ""), msg("b", "", ""))
	failed, ok := errors.AsType[*transport.PublishError](err)
	require.True(t, ok)
	require.Len(t, failed.Failed, 2)
	require.True(t, failed.Failed[1].Permanent)
	require.NoError(t, p.Publish(t.Context(), "made.on.first.use", msg("a", "", "")))
	require.Equal(t, 1, b.count("leat_topics"))
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()))
	require.ErrorIs(t, p.Publish(t.Context(), topicName, msg("a", "", "")), transport.ErrClosed)
}
