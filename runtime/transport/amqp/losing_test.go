package amqp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// TestDeliveryLimitOfOthers: their queue gives a message up that comes back too
// often. With a dead-letter exchange it is kept there; without one it is gone,
// of which the log warns at the start.
func TestDeliveryLimitOfOthers(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			t.Parallel()
			queue := fmt.Sprintf("limited.%v.%x", kept, time.Now().UnixNano())
			dead := queue + ".dead"
			r := newRig(t, address, func(o *amqp.Options) {
				o.Topics = map[string]amqp.TopicOptions{"theirs": {Queue: queue}}
			})
			ch := raw(t, address)
			args := amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 2}
			if kept {
				args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", dead
			}
			for name, args := range map[string]amqp091.Table{queue: args, dead: nil} {
				_, err := ch.QueueDeclare(name, true, false, false, false, args)
				require.NoError(t, err)
				t.Cleanup(func() { _, _ = raw(t, address).QueueDelete(name, false, false, false) })
			}
			r.topic = "theirs"
			r.declare()
			require.Equal(t, !kept, strings.Contains(r.log.String(), "delivery limit and no dead-letter exchange"), r.log)
			r.publish(1)
			left := func(name string) amqp091.Queue {
				q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
				if err != nil {
					return amqp091.Queue{Messages: -1, Consumers: -1}
				}
				return q
			}
			kills := 0
			for left(queue).Messages > 0 {
				c := r.consumer(fmt.Sprint(kills))
				r.receive(c, 1)
				amqp.Kill(c)
				kills++
				require.Eventually(t, func() bool { return left(queue).Consumers == 0 }, 30*time.Second, 10*time.Millisecond)
			}
			require.Equal(t, 3, kills)
			if !kept {
				require.Zero(t, left(dead).Messages)
				return
			}
			require.Eventually(t, func() bool { return left(dead).Messages == 1 }, 30*time.Second, 10*time.Millisecond)
			m, ok, err := ch.Get(dead, true)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, "m-000", m.MessageId)
		})
	}
}

// TestQueuesThatLose: what a queue of others does to messages is said at the start.
func TestQueuesThatLose(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	queue := fmt.Sprintf("losing.%x", time.Now().UnixNano())
	_, err := raw(t, address).QueueDeclare(queue, false, true, false, false, amqp091.Table{"x-max-length": 10, "x-overflow": "drop-head", "x-expires": 600000})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = raw(t, address).QueueDelete(queue, false, false, false) })
	r := newRig(t, address, func(o *amqp.Options) { o.Topics = map[string]amqp.TopicOptions{"theirs": {Queue: queue}} })
	r.topic = "theirs"
	r.declare()
	for _, argument := range []string{"durable", "auto_delete", "x-max-length", "x-expires"} {
		require.Contains(t, r.log.String(), "argument="+argument)
	}
}

// TestQueuePurged: what waited is gone, what is in hand is not, and all goes on.
func TestQueuePurged(t *testing.T) {
	t.Parallel()
	address := brokertest.URL(t, "rabbitmq")
	r := newRig(t, address)
	r.declare()
	few := r.config("c")
	few.Prefetch = 5
	c, err := r.tr.OpenConsumer(r.within(), few)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(r.within())) }()
	r.publish(20)
	held := r.receive(c, 5)
	purged, err := raw(t, address).QueuePurge(r.queue(), false)
	require.NoError(t, err)
	require.Equal(t, 15, purged)
	r.ack(c, held...)
	r.publish(3)
	ds := r.receive(c, 3)
	for i, d := range ds {
		require.Equal(t, fmt.Sprintf("m-%03d", i), d.ID)
	}
	r.ack(c, ds...)
}
