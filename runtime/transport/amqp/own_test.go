package amqp_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
)

// TestOwnBroker does to a broker what others would not stand.
func TestOwnBroker(t *testing.T) {
	t.Parallel()
	own := brokertest.Start(t, "rabbitmq")
	p := place{own.URL("rabbitmq"), own}
	memory := [2][]string{{"set_vm_memory_high_watermark", "absolute", "1MB"}, {"set_vm_memory_high_watermark", "0.4"}}
	disk := [2][]string{{"set_disk_free_limit", "10000GB"}, {"set_disk_free_limit", "50MB"}}
	for name, test := range map[string]func(*testing.T, place){ //nolint:paralleltest // each has the broker to itself
		"memory alarm":     func(t *testing.T, p place) { t.Helper(); alarm(t, p, memory) },
		"disk alarm":       func(t *testing.T, p place) { t.Helper(); alarm(t, p, disk) },
		"consumer_timeout": consumerTimeout,
		"rights":           rights,
		"rotated password": rotated,
		"full queue":       fullQueue,
		"vhost removed":    vhostRemoved,
		"given up":         givenUp,
	} {
		t.Run(name, func(t *testing.T) { test(t, p) })
	}
}

// alarm: consumers go on, publishers fail soon and say why, and what was
// delayed is not lost; then all goes on.
func alarm(t *testing.T, p place, on [2][]string) {
	t.Helper()
	r := newRig(t, p.url)
	r.declare()
	r.publish(20)
	pub := r.producer()
	c := r.consumer()
	p.ctl(on[0]...)
	blocked := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return pub.Publish(ctx, r.topic, message.NewMessage("during", nil))
	}
	require.Eventually(t, func() bool { return blocked() != nil }, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		err := blocked()
		return err != nil && strings.Contains(err.Error(), "blocks publishers")
	}, 30*time.Second, 10*time.Millisecond, "publishes fail at once")
	require.Contains(t, r.log.String(), "broker blocks the connection")

	ds := r.receive(c, 20)
	r.ack(c, ds[:10]...)
	began := time.Now()
	require.NoError(t, c.Settle(r.within(), []transport.Settlement{{Delivery: ds[10], Verdict: transport.Delay, After: time.Hour, Attempts: 1}}))
	require.Less(t, time.Since(began), 20*time.Second)
	r.ack(c, ds[11:]...)
	other := r.consumer() // can be opened meanwhile
	require.NoError(t, other.Close(r.within()))
	p.ctl(on[1]...)
	require.Eventually(t, func() bool { return blocked() == nil }, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		d, err := r.tr.Depth(r.within(), r.topic, r.group)
		return err == nil && d.Delayed == 1
	}, 30*time.Second, 10*time.Millisecond, "the delay is told when it can be")
}

// consumerTimeout: the broker takes back what is held for too long, the reason
// says so, and it comes again.
func consumerTimeout(t *testing.T, p place) {
	t.Helper()
	p.ctl("eval", "application:set_env(rabbit,consumer_timeout,1000), application:set_env(rabbit,channel_tick_interval,500).")
	defer p.ctl("eval", "application:set_env(rabbit,consumer_timeout,1800000), application:set_env(rabbit,channel_tick_interval,60000).")
	r := newRig(t, p.url)
	r.declare()
	r.publish(1)
	c := r.consumer()
	d := r.receive(c, 1)[0]
	_, err := c.Receive(r.within(), 1, 1)
	require.ErrorContains(t, err, "consumer_timeout")
	require.ErrorIs(t, context.Cause(d.Assignment.Context()), transport.ErrRevoked)
	require.NoError(t, c.Close(r.within()))
	c = r.consumer()
	again := r.receive(c, 1)[0]
	require.True(t, again.Redelivered)
	require.Greater(t, again.Session, d.Session)
	r.ack(c, again)
}

// rights: what is denied is named; what is there needs no right to be made.
func rights(t *testing.T, p place) {
	t.Helper()
	r := newRig(t, p.url)
	r.declare()
	p.ctl("add_user", "limited", "secret")
	limited := func(configure, write, read string) transport.Transport {
		p.ctl("set_permissions", "limited", configure, write, read)
		tr := open(t, p.url, func(o *amqp.Options) { o.Username, o.Password = "limited", config.NewSecret("secret") })
		t.Cleanup(func() { require.NoError(t, tr.Close(context.Background())) })
		return tr
	}
	tr := limited("^$", ".*", ".*")
	require.NoError(t, tr.Declare(r.within(), transport.TopologyDeclare, transport.Declaration{Topic: r.topic, Group: r.group}))
	err := tr.Declare(r.within(), transport.TopologyDeclare, transport.Declaration{Topic: r.topic + ".new"})
	require.True(t, transport.Refused(err))
	require.ErrorContains(t, err, "access to exchange") // 3.10 does not say which
	require.NotContains(t, err.Error(), "secret")

	tr = limited("^$", "^$", ".*")
	pub, err := tr.OpenProducer(r.within())
	require.NoError(t, err)
	err = pub.Publish(r.within(), r.topic, message.NewMessage("m", nil))
	var failed *transport.PublishError
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Failed[0].Permanent)
	require.ErrorContains(t, err, "access to exchange")
	require.NoError(t, pub.Close(r.within()))

	tr = limited("^$", ".*", "^$")
	_, err = tr.OpenConsumer(r.within(), r.config("c"))
	require.True(t, transport.Refused(err))
	require.ErrorContains(t, err, "access to queue")
}

// rotated: a password that changes is read again at the next connection.
func rotated(t *testing.T, p place) {
	t.Helper()
	file := t.TempDir() + "/password"
	write := func(password string) {
		p.ctl("change_password", "rotating", password)
		require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	}
	p.ctl("add_user", "rotating", "first")
	p.ctl("set_permissions", "rotating", ".*", ".*", ".*")
	write("first")
	r := newRig(t, p.url, func(o *amqp.Options) { o.Username, o.PasswordFile = "rotating", file })
	r.declare()
	pub := r.producer()
	require.NoError(t, pub.Publish(r.within(), r.topic, message.NewMessage("before", nil)))
	write("second")
	p.disconnect(t)
	require.Eventually(t, func() bool {
		return pub.Publish(r.within(), r.topic, message.NewMessage("after", nil)) == nil
	}, 30*time.Second, 10*time.Millisecond)
}

// vhostRemoved: it is said, for good, until the vhost is there again.
func vhostRemoved(t *testing.T, p place) {
	t.Helper()
	add := func() {
		p.ctl("add_vhost", "gone")
		p.ctl("set_permissions", "-p", "gone", "guest", ".*", ".*", ".*")
	}
	add()
	r := newRig(t, p.url+"/gone")
	r.declare()
	c := r.consumer()
	p.ctl("delete_vhost", "gone")
	_, err := c.Receive(r.within(), 1, 1)
	require.Regexp(t, "vhost 'gone' is (deleted|down)|was deleted under its consumer", err.Error(), "its queues go before it")
	require.False(t, transport.Refused(err))
	_, err = r.tr.OpenConsumer(r.within(), r.config("c"))
	require.ErrorContains(t, err, "vhost gone not found")
	require.True(t, transport.Refused(err))
	add()
	c = r.consumer()
	r.publish(1)
	r.ack(c, r.receive(c, 1)...)
}

// fullQueue: a queue that refuses is no confirmation.
func fullQueue(t *testing.T, p place) {
	t.Helper()
	r := newRig(t, p.url)
	r.declare()
	p.ctl("set_policy", "full", "^"+r.topic, `{"max-length":1,"overflow":"reject-publish"}`, "--apply-to", "queues")
	pub := r.producer()
	var err error
	require.Eventually(t, func() bool {
		err = pub.Publish(r.within(), r.topic, message.NewMessage("m", nil))
		return err != nil
	}, 30*time.Second, 10*time.Millisecond)
	require.ErrorContains(t, err, "refuses it")
	p.ctl("clear_policy", "full")
}

// givenUp: a channel that opens after nobody waits for it any more is closed.
func givenUp(t *testing.T, p place) {
	t.Helper()
	tr := newRig(t, p.url).tr.(swept).Transport
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		l, err := amqp.OpenLine(over, tr)
		if err == nil { // it was faster
			l.Close()
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	l, err := amqp.OpenLine(t.Context(), tr)
	require.NoError(t, err)
	defer l.Close()
	require.Eventually(t, func() bool {
		return len(strings.Fields(p.own.Exec("rabbitmq", "rabbitmqctl", "-q", "--no-table-headers", "list_channels", "pid"))) == 1
	}, 30*time.Second, 10*time.Millisecond)
}
