package badtransport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// Fragile presents a broker in memory with all hooks, as one over a network
// would: it can be killed, frozen and cut off, and keeps every promise.
func Fragile(b *memory.Broker) transporttest.Broker {
	send := func(tb transporttest.TB, topic string, msgs ...*message.Message) {
		p, err := b.Transport().OpenProducer(tb.Context())
		require.NoError(tb, err)
		require.NoError(tb, p.Publish(context.WithoutCancel(tb.Context()), topic, msgs...))
	}
	cut := func(why string) func(transporttest.TB) {
		return func(transporttest.TB) { b.Cut(errors.New(why), nil) }
	}
	l := &link{b: b}
	return transporttest.Broker{
		Transport: func(transporttest.TB) transport.Transport { return bounded{b.Transport()} },
		Kill: func(_ transporttest.TB, _ transport.Consumer, cfg transport.ConsumerConfig) {
			b.Cut(errors.New("killed"), func(c transport.ConsumerConfig) bool { return c.Name == cfg.Name })
		},
		Restart:    cut("restarted"),
		Crash:      cut("crashed"),
		Disconnect: cut("disconnected"),
		Jump:       func(transporttest.TB, time.Duration) {},
		Link:       l,
		Oversize:   oversize,
		Idle:       time.Second,
		Freeze: func(transporttest.TB) func() {
			l.Stall()
			return l.Resume
		},
		Deny: func(transporttest.TB) func() {
			l.inject(memory.Fault{Err: transport.Refuse(errors.New("access denied"))}, everyOp()...)
			b.Cut(errors.New("denied"), nil)
			return l.Heal
		},
		Foreign: func(tb transporttest.TB, topic, _ string) int {
			send(tb, topic, &message.Message{}, &message.Message{Payload: []byte("x")})
			return 2
		},
		PublishLater: func(tb transporttest.TB, topic string, msgs ...*message.Message) func() {
			return func() { send(tb, topic, msgs...) }
		},
	}
}

// link is the way to a broker in memory, which fails as one over a network does.
type link struct {
	b *memory.Broker

	mu    sync.Mutex
	heals []func()
}

func everyOp() []memory.Op {
	return []memory.Op{
		memory.OpDeclare, memory.OpOpenConsumer, memory.OpOpenProducer, memory.OpPublish, memory.OpReceive, memory.OpSettle, memory.OpDepth,
	}
}

func (l *link) inject(f memory.Fault, ops ...memory.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range ops {
		f.Op = op
		l.heals = append(l.heals, l.b.Inject(f))
	}
}

func (l *link) Cut() {
	l.inject(memory.Fault{Err: errors.New("connection refused")}, everyOp()...)
	l.b.Cut(errors.New("connection reset"), nil)
}

func (l *link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, heal := range l.heals {
		heal()
	}
	l.heals = nil
}

func (l *link) Stall()  { l.inject(memory.Fault{Hang: true}, append(everyOp(), memory.OpClose)...) }
func (l *link) Resume() { l.Heal() }

func (l *link) LimitThenReset(dir transporttest.Direction, _ int) {
	l.inject(memory.Fault{Err: errors.New("connection reset"), Times: 1, Late: dir == transporttest.ToClient}, memory.OpSettle, memory.OpPublish)
}

func (l *link) Latency(time.Duration) {}

const oversize = 1 << 20

// bounded takes no message of that size.
type bounded struct{ transport.Transport }

func (b bounded) OpenProducer(ctx context.Context) (transport.Producer, error) {
	p, err := b.Transport.OpenProducer(ctx)
	return boundedProducer{p}, err
}

type boundedProducer struct{ transport.Producer }

func (p boundedProducer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	refused := &transport.PublishError{Topic: topic}
	var good []*message.Message
	for i, m := range msgs {
		if len(m.Payload) < oversize {
			good = append(good, m)
			continue
		}
		refused.Failed = append(refused.Failed, transport.PublishFailure{Index: i, Err: errors.New("too large"), Permanent: true})
	}
	err := p.Producer.Publish(ctx, topic, good...)
	if err != nil || len(refused.Failed) == 0 {
		return err
	}
	return refused
}
