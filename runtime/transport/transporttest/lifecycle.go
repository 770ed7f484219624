package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// receiveEnds: Receive returns when its context ends, however often that
// happens, and neither loses nor doubles anything by it.
func receiveEnds(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	ctx, cancel := context.WithCancel(r.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := m.Receive(ctx, 10, maxBytes)
		failed <- err
	}()
	r.rest(r.o.Quiet / 10)
	cancel()
	select {
	case err := <-failed:
		require.ErrorIs(r, err, context.Canceled)
	case <-time.After(r.o.Patience):
		require.FailNow(r, "Receive still waits after its context has ended")
	}
	for _, wait := range []time.Duration{-1, 0, r.o.Quiet / 10} {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		ds, err := m.Receive(ctx, 10, maxBytes)
		cancel()
		require.Empty(r, ids(ds))
		require.ErrorIs(r, err, context.DeadlineExceeded)
	}

	const n = 100
	published := make(chan error, 1)
	within, done := r.within()
	defer done()
	go func() {
		for i := range n {
			if err := s.pub.Publish(within, s.topic, msg(fmt.Sprint("m-", i), "k")); err != nil {
				published <- err
				return
			}
		}
		published <- nil
	}()
	var all []*transport.Delivery
	for wait := time.Duration(0); len(all) < n; wait = (wait + 100*time.Microsecond) % (5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(within, wait)
		ds, err := m.Receive(ctx, 10, maxBytes)
		cancel()
		require.NoError(r, within.Err(), "%d of %d deliveries came", len(all), n)
		if err != nil {
			require.ErrorIs(r, err, context.DeadlineExceeded)
			require.Empty(r, ids(ds), "deliveries together with an error")
		}
		all = append(all, ds...)
	}
	require.NoError(r, <-published)
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint("m-", i))
	}
	r.all(want, all)
	m.settle(transport.Ack, all...)
	m.quiet()
}

type baseKey struct{}

// contexts: those of deliveries derive from the consumer's base, outlive the
// opening, and say why they end.
func contexts(r *rig) {
	s := r.stream()
	base, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(r.Context()), baseKey{}, "base"))
	defer cancel(nil)
	opening, opened := r.within()
	m := s.join(r.tr)
	m.close()
	m.cfg.Base = base //nolint:fatcontext // the base is what is tested
	c, err := r.tr.OpenConsumer(opening, m.cfg)
	require.NoError(r, err)
	opened()
	m.Consumer = c
	s.send("m", "k", 1)
	d := m.receive(1)[0]
	ctx := d.Assignment.Context()
	require.Equal(r, "base", ctx.Value(baseKey{}))
	require.NoError(r, ctx.Err(), "the context of a delivery")
	cancel(transport.ErrShutdown)
	require.ErrorIs(r, context.Cause(ctx), transport.ErrShutdown)
	m.settle(transport.Ack, d)
	m.close()
	require.ErrorIs(r, context.Cause(ctx), transport.ErrShutdown, "the first cause stands")

	m = s.join(r.tr)
	s.send("n", "k", 1)
	ctx = m.receive(1)[0].Assignment.Context()
	require.NoError(r, ctx.Err())
	m.close()
	require.ErrorIs(r, context.Cause(ctx), transport.ErrRevoked)
}

// closing: everything may be closed twice, and says so to who goes on.
func closing(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	failed := make(chan error, 1)
	waiting, give := context.WithCancel(context.WithoutCancel(r.Context()))
	defer give()
	go func() {
		_, err := m.Receive(waiting, 10, maxBytes)
		failed <- err
	}()
	r.rest(r.o.Quiet / 10)
	m.close()
	ctx, cancel := r.within()
	defer cancel()
	select {
	case err := <-failed:
		require.Error(r, err, "of a Receive that waited while its consumer was closed")
	case <-ctx.Done():
		require.FailNow(r, "Receive still waits after Close")
	}
	_, err := m.Receive(ctx, 10, maxBytes)
	require.Error(r, err, "Receive after Close")
	require.NoError(r, m.Close(ctx), "the second Close of a consumer")

	require.NoError(r, s.pub.Close(ctx))
	require.NoError(r, s.pub.Close(ctx), "the second Close of a producer")

	tr := r.connect()
	require.NoError(r, tr.Close(ctx), "a transport that was never used")
	require.NoError(r, tr.Close(ctx), "the second Close of a transport")
	p, err := tr.OpenProducer(ctx)
	if err == nil { // it may find out later
		err = p.Publish(ctx, s.topic, msg("m", "k"))
		require.NoError(r, p.Close(ctx))
	}
	require.Error(r, err, "a producer of a closed transport")
	_, err = tr.OpenConsumer(ctx, m.cfg)
	require.Error(r, err, "a consumer of a closed transport")
}

// closeInTime: Close returns when its context ends, and what it could not give
// back comes again all the same.
func closeInTime(r *rig) {
	s := r.stream()
	m := s.join(r.tr)
	want := s.send("m", "k", 5)
	m.receive(5)
	over, end := context.WithCancel(context.WithoutCancel(r.Context()))
	end()
	closed := make(chan error, 1)
	m.gone = true
	go func() { closed <- m.Close(over) }()
	select {
	case err := <-closed:
		if err != nil {
			r.Logf("close without time: %v", err) // as it may say
		}
	case <-time.After(r.o.Patience):
		require.FailNow(r, "Close goes on though its context has ended")
	}
	next := s.join(r.connect())
	require.ElementsMatch(r, want, ids(next.takeOver(5)))
}

// noLeaks: nothing runs any more of what was opened, used and closed.
func noLeaks(r *rig) {
	id := r.name("leaks")
	ctx, cancel := r.within()
	defer cancel()
	var err error
	pprof.Do(ctx, pprof.Labels("transporttest", id), func(ctx context.Context) {
		err = r.useAndClose(ctx)
	})
	require.NoError(r, err)
	tick := time.NewTicker(r.o.Quiet / 20)
	defer tick.Stop()
	for {
		left := Goroutines(id)
		if left == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Empty(r, left, "goroutines that still run after everything was closed")
		}
	}
}

// useAndClose opens, uses and closes a connection with all its parts, some
// of them twice.
func (r *rig) useAndClose(ctx context.Context) (err error) {
	tr := r.broker.Transport(r.TB)
	defer func() { err = errors.Join(err, tr.Close(ctx)) }()
	topic := r.name("orders")
	for range 3 {
		c, err := tr.OpenConsumer(ctx, transport.ConsumerConfig{
			Name: "c", Topics: []string{topic}, Group: topic, Start: transport.StartEarliest, Topology: transport.TopologyDeclare,
			Instance: transport.Instance{ID: topic}, Prefetch: maxLimit, PrefetchBytes: maxBytes, Span: 1 << 20, Base: context.WithoutCancel(ctx),
		})
		if err != nil {
			return err
		}
		p, err := tr.OpenProducer(ctx)
		if err != nil {
			return errors.Join(err, c.Close(ctx))
		}
		err = p.Publish(ctx, topic, msg("m-0", "k"), msg("m-1", "k"))
		if err == nil {
			_, err = c.Receive(ctx, 1, maxBytes) // and leaves it unsettled
		}
		if err := errors.Join(err, p.Close(ctx), c.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}
