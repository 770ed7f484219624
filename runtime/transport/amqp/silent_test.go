package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// silent is a broker that does not answer while the link is stalled.
func silent(t *testing.T) (*rig, *brokertest.Proxy) {
	t.Helper()
	link, through := place{url: brokertest.URL(t, "rabbitmq")}.behind(t)
	r := newRig(t, through, func(o *amqp.Options) { o.PublishTimeout = 2 * time.Second })
	r.declare()
	r.publish(1)
	return r, link
}

// TestBindingsAreNotWaitedFor: a broker that does not answer holds nobody up who
// had bound the queue before.
func TestBindingsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	r, link := silent(t)
	link.Stall()
	defer link.Resume()
	tr := r.tr.(swept).Transport
	require.NoError(t, amqp.Bind(r.within(), tr, r.topic, r.queue()))
	require.Contains(t, r.log.String(), "it was, and is taken to be")
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, amqp.Bind(ctx, tr, r.topic, "another"), context.DeadlineExceeded)
}

// TestSilentChannelIsGivenUp: a publish that is not confirmed in time has all that
// waits on its channel fail, and the next one use another.
func TestSilentChannelIsGivenUp(t *testing.T) {
	t.Parallel()
	r, link := silent(t)
	p := r.producer()
	publish := func(id string) error { return p.Publish(r.within(), r.topic, message.NewMessage(id, nil)) }
	require.NoError(t, publish("before"))
	link.Stall()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- publish("first") }()
	later := time.NewTimer(time.Second)
	defer later.Stop()
	<-later.C
	go func() { second <- publish("second") }()
	require.ErrorContains(t, <-first, "no confirmation within 2s")
	require.ErrorContains(t, <-second, "is given up")
	link.Resume()
	require.NoError(t, publish("after"))
}
