package transporttest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// What one Receive may ask for, where a case does not say.
const (
	maxLimit = 1000
	maxBytes = 16 << 20
)

// member is one consumer.
type member struct {
	transport.Consumer
	r    *rig
	tr   transport.Transport
	cfg  transport.ConsumerConfig
	gone bool // closed or killed
}

func (m *member) open() {
	m.r.Helper()
	ctx, cancel := m.r.withinTakeover()
	defer cancel()
	c, err := m.tr.OpenConsumer(ctx, m.cfg)
	require.NoError(m.r, err, "open consumer of group %q", m.cfg.Group)
	m.Consumer, m.gone = c, false
	m.r.Cleanup(func() {
		if !m.gone && m.Consumer == c {
			m.close()
		}
	})
}

func (m *member) close() {
	m.r.Helper()
	m.gone = true
	ctx, cancel := m.r.within()
	defer cancel()
	m.r.closed("consumer", m.Close(ctx))
}

// reopen closes the consumer and opens it again, as another process does.
func (m *member) reopen() {
	m.r.Helper()
	m.close()
	m.open()
}

func (m *member) kill() {
	m.gone = true
	m.r.broker.Kill(m.r.TB, m.Consumer, m.cfg)
}

// receive gets n deliveries, however many each Receive gives.
func (m *member) receive(n int) []*transport.Delivery {
	m.r.Helper()
	ctx, cancel := m.r.within()
	defer cancel()
	return m.gather(ctx, n)
}

// takeOver is receive where another member has to be given up first.
func (m *member) takeOver(n int) []*transport.Delivery {
	m.r.Helper()
	ctx, cancel := m.r.withinTakeover()
	defer cancel()
	return m.gather(ctx, n)
}

func (m *member) gather(ctx context.Context, n int) []*transport.Delivery {
	m.r.Helper()
	var all []*transport.Delivery
	for len(all) < n {
		ds, err := m.Receive(ctx, min(n-len(all), maxLimit), maxBytes)
		require.NoError(m.r, err, "%d of %d deliveries came: %v", len(all), n, ids(all))
		require.NotEmpty(m.r, ds, "Receive gave neither deliveries nor an error")
		for _, d := range ds {
			require.NotNil(m.r, d.Assignment, "delivery %s has no assignment", d.Coordinates())
		}
		all = append(all, ds...)
	}
	return all
}

// quiet checks that nothing comes.
func (m *member) quiet() {
	m.r.Helper()
	ctx, cancel := context.WithTimeout(m.r.Context(), m.r.o.Quiet)
	defer cancel()
	ds, err := m.Receive(ctx, maxLimit, maxBytes)
	require.Empty(m.r, ids(ds), "deliveries where there are none to come")
	require.ErrorIs(m.r, err, context.DeadlineExceeded)
}

// leftovers takes and acks what comes until it is quiet.
func (m *member) leftovers() (all []string) {
	m.r.Helper()
	for {
		ctx, cancel := context.WithTimeout(m.r.Context(), m.r.o.Quiet)
		ds, err := m.Receive(ctx, maxLimit, maxBytes)
		cancel()
		if len(ds) == 0 {
			require.ErrorIs(m.r, err, context.DeadlineExceeded)
			return all
		}
		all = append(all, ids(ds)...)
		m.settle(transport.Ack, ds...)
	}
}

func (m *member) settle(v transport.Verdict, ds ...*transport.Delivery) {
	m.r.Helper()
	require.NoError(m.r, m.tell(settlements(v, ds...)), "settle %s", v)
}

// ackSome acks n of what is there, and gives those of ids that are left.
func (m *member) ackSome(all []string, n int) []string {
	m.r.Helper()
	ds := m.receive(n)
	m.settle(transport.Ack, ds...)
	done := ids(ds)
	return slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(done, id) })
}

func (m *member) tell(batch []transport.Settlement) error {
	ctx, cancel := m.r.within()
	defer cancel()
	return m.Settle(ctx, batch)
}

// fail settles a delivery as failed for the n-th time.
func (m *member) fail(v transport.Verdict, d *transport.Delivery, n int, after time.Duration) {
	m.r.Helper()
	require.NoError(m.r, m.tell([]transport.Settlement{{
		Delivery: d, Verdict: v, After: after, Attempts: n, FirstFailure: failedAt(), LastError: lastError,
	}}), "settle %s", v)
}

// failedAt and lastError are what a failed delivery is settled with.
func failedAt() time.Time { return time.Date(2024, 2, 29, 12, 30, 0, 123456000, time.UTC) }

const lastError = "suite.Failure"

func settlements(v transport.Verdict, ds ...*transport.Delivery) []transport.Settlement {
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: v}
	}
	return batch
}

// pump receives in the background, as the engine does, and hands on what
// comes, until the case is over.
func (m *member) pump(limit int, hand func([]*transport.Delivery)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.r.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ds, err := m.Receive(ctx, limit, maxBytes)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					m.r.Errorf("receive of %s: %v", m.cfg.Name, err)
				}
				return
			}
			hand(ds)
		}
	}()
	m.r.Cleanup(func() {
		cancel()
		<-done
	})
}
