package dir

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

type producer struct {
	t      *Transport
	closed atomic.Bool
}

// OpenProducer opens a publisher. A topic that is missing is made at its
// first message.
func (t *Transport) OpenProducer(context.Context) (transport.Producer, error) {
	if t.closed.Load() {
		return nil, transport.ErrClosed
	}
	return &producer{t: t}, nil
}

// Publish writes the messages of a partition all or none.
func (p *producer) Publish(ctx context.Context, name string, msgs ...*message.Message) error {
	if p.closed.Load() || p.t.closed.Load() {
		return transport.ErrClosed
	}
	fail := &transport.PublishError{Topic: name}
	failed := func(err error, permanent bool, of ...int) {
		for _, i := range of {
			fail.Failed = append(fail.Failed, transport.PublishFailure{Index: i, Err: err, Permanent: permanent})
		}
	}
	all := make([]int, len(msgs))
	for i := range msgs {
		all[i] = i
	}
	if err := transport.CheckName("topic", name); err != nil {
		failed(err, true, all...)
		return fail
	}
	if len(msgs) == 0 {
		return nil
	}
	select {
	case p.t.writing <- struct{}{}:
		defer func() { <-p.t.writing }()
	case <-ctx.Done():
		return fmt.Errorf("publish to %q: %w", name, ctx.Err())
	}
	tp, err := p.t.makeTopic(name)
	if err != nil {
		return fmt.Errorf("publish to %q: %w", name, err)
	}
	parts := make([][]int, tp.partitions)
	for i, m := range msgs {
		at := tp.partitionOf(m)
		parts[at] = append(parts[at], i)
	}
	for at, of := range parts {
		if len(of) == 0 {
			continue
		}
		if err := tp.add(ctx, at, of, func(i int) []byte { return encode(msgs[i], time.Now()) }); err != nil {
			failed(err, false, of...)
		}
	}
	if len(fail.Failed) > 0 {
		return fail
	}
	return nil
}

// Close ends it for what is not published yet.
func (p *producer) Close(context.Context) error {
	p.closed.Store(true)
	return nil
}

// partitionOf keeps a key together and spreads the rest.
func (tp *topic) partitionOf(m *message.Message) int {
	key := m.Metadata.Get(transport.KeyHeader)
	if key == "" {
		return rand.IntN(tp.partitions) //nolint:gosec // spreads load, guards nothing
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))                   // a hash takes everything
	return int(h.Sum32() % uint32(tp.partitions)) //nolint:gosec // at most 64
}

// add writes files above the end, where nobody looks, and then moves the end,
// which is the commit. Files that a killed publisher has left there are
// overwritten.
func (tp *topic) add(ctx context.Context, partition int, of []int, content func(int) []byte) (err error) {
	held, err := lock(ctx, tp.file(partition, "lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	end, err := tp.end(partition)
	if err != nil {
		return err
	}
	for _, i := range of {
		if err := os.WriteFile(tp.message(partition, end), content(i), 0o600); err != nil {
			return err
		}
		end++
	}
	return writeNumber(tp.file(partition, "end"), end)
}
