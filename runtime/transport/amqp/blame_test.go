package amqp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// TestHeadersTheBrokerActsOn: they steer nothing, stop nobody, and come back.
func TestHeadersTheBrokerActsOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"))
	r.declare()
	want := message.Metadata{"CC": "a", "BCC": "b", "amqp_reply_to": "amq.rabbitmq.reply-to"}
	m := message.NewMessage("m", []byte("body"))
	m.Metadata = want
	require.NoError(t, r.producer().Publish(r.within(), r.topic, m))
	c := r.consumer()
	d := r.receive(c, 1)[0]
	require.Equal(t, map[string]string(want), d.Headers.Map())
	r.ack(c, d)
}

// TestCopiesOfACopyAreNotSent: a list of further queues that another publisher
// has asked for is theirs; a copy of the message is not sent to them again.
func TestCopiesOfACopyAreNotSent(t *testing.T) {
	t.Parallel()
	tr := open(t, "amqp://localhost")
	list := amqp091.Table{"CC": []any{"q1", "q2"}}
	d := amqp.Decode(amqp091.Delivery{MessageId: "m", Headers: list})
	p, err := amqp.Encode(tr, &message.Message{UUID: "m", Metadata: d.Headers.Map()}, 0)
	require.NoError(t, err)
	require.NotContains(t, p.Headers, "CC")
	again := amqp.Decode(amqp091.Delivery{Headers: p.Headers})
	require.Equal(t, d.Headers, again.Headers)
}

// poison is refused by the broker, which closes the channel.
func poison() amqp091.Publishing {
	return amqp091.Publishing{MessageId: "poison", UserId: "somebody else"}
}

// TestPoisonAmongOthers: the broker does not say which message it has closed the
// channel for. That one alone fails, for good, and the others are confirmed.
func TestPoisonAmongOthers(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	for name, publish := range map[string]func(r *rig, l *amqp.Line, pubs []amqp091.Publishing) []transport.PublishFailure{
		"one call": func(r *rig, l *amqp.Line, pubs []amqp091.Publishing) []transport.PublishFailure {
			failures, err := l.Publish(r.within(), r.topic, pubs...)
			require.NoError(r, err)
			return failures
		},
		"many calls": func(r *rig, l *amqp.Line, pubs []amqp091.Publishing) []transport.PublishFailure {
			var mu sync.Mutex
			var failures []transport.PublishFailure
			var wg sync.WaitGroup
			ctx := r.within()
			for _, p := range pubs {
				wg.Go(func() {
					more, err := l.Publish(ctx, r.topic, p)
					if err != nil {
						r.Errorf("%s: %v", p.MessageId, err)
					}
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, more...)
				})
			}
			wg.Wait()
			return failures
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, address)
			r.declare()
			l, err := amqp.OpenLine(r.within(), r.tr.(swept).Transport)
			require.NoError(t, err)
			defer l.Close()
			var pubs []amqp091.Publishing
			missing := map[string]bool{}
			for i := range 60 {
				if i == 20 {
					pubs = append(pubs, poison())
				}
				id := fmt.Sprint("m", i)
				pubs, missing[id] = append(pubs, amqp091.Publishing{MessageId: id}), true
			}
			failures := publish(r, l, pubs)
			require.Len(t, failures, 1)
			require.True(t, failures[0].Permanent)
			require.ErrorContains(t, failures[0].Err, "user_id")
			c := r.consumer()
			for len(missing) > 0 {
				for _, d := range r.receive(c, 1) {
					require.NotEqual(t, "poison", d.ID)
					delete(missing, d.ID)
					r.ack(c, d)
				}
			}
		})
	}
}

// TestChannelEnds: a consumer hears of it, whenever it looks.
func TestChannelEnds(t *testing.T) {
	t.Parallel()
	for range 64 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := amqp.Ended(ctx, &amqp091.Error{Code: 406, Reason: "PRECONDITION_FAILED - unknown delivery tag 4711", Server: true})
		cancel()
		require.ErrorContains(t, err, "unknown delivery tag")
	}
}

// TestNoDelayAfterALoss: what is given back comes again by itself, so no copy of
// it is sent to a delay queue after that.
func TestNoDelayAfterALoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, brokertest.URL(t, "rabbitmq"))
	tr := r.tr.(swept).Transport
	r.declare()
	r.publish(1)
	c := r.consumer()
	d := r.receive(c, 1)[0]
	require.NoError(t, amqp.Block(r.within(), tr, true))
	require.NoError(t, c.Settle(r.within(), []transport.Settlement{{Delivery: d, Verdict: transport.Delay, After: time.Hour, Attempts: 1}}))
	amqp.Lose(c)
	require.NoError(t, amqp.Block(r.within(), tr, false))
	amqp.AwaitDelays(c)
	depth, err := r.tr.Depth(r.within(), r.topic, r.group)
	require.NoError(t, err)
	require.Zero(t, depth.Delayed)
}

// TestLateDeadLetter: who reads a dead letter before it is declared stays with
// the queue that it has, and who only looked is not held to what it saw.
func TestLateDeadLetter(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	dead := transport.Declaration{DeadLetter: true}

	early := newRig(t, address)
	c := early.consumer()
	dead.Topic = early.topic
	early.declare(dead)
	require.NoError(t, c.Close(early.within()))
	early.publish(1)
	other := swept{open(t, address, ours), early.tr.(swept).s}
	t.Cleanup(func() { require.NoError(t, other.Close(context.Background())) })
	early.tr = other
	c = early.consumer()
	early.ack(c, early.receive(c, 1)...)
	depth, err := other.Depth(early.within(), early.topic, early.group)
	require.NoError(t, err)
	require.Zero(t, depth.Ready)
	_, err = raw(t, address).QueueDeclarePassive(early.queue(), true, false, false, false, nil)
	require.NoError(t, err)

	looked := newRig(t, address)
	_, err = looked.tr.Depth(looked.within(), looked.topic, looked.group)
	require.True(t, transport.Refused(err), "there is no queue: %v", err)
	dead.Topic = looked.topic
	looked.declare(dead)
	looked.publish(1)
	c = looked.consumer()
	looked.ack(c, looked.receive(c, 1)...)
	_, err = raw(t, address).QueueDeclarePassive(looked.queue(), true, false, false, false, nil)
	require.ErrorContains(t, err, "no queue")
}
