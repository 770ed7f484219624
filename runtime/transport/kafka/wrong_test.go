package kafka_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/leat-io/leat/runtime/transport/history"
)

// mute takes connections, and says nothing on them.
func mute(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var loops sync.WaitGroup
	loops.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			loops.Go(func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { // the worker, which has the other ends, was killed before
		require.NoError(t, l.Close())
		loops.Wait()
	})
	return l.Addr().String()
}

// stranger answers what it is told first as a RabbitMQ does.
func stranger(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, "AMQP\x00\x00\x09\x01")
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		loop.Wait()
	})
	return l.Addr().String()
}

// TestWrongWorlds runs the worker where something is wrong. It says what, where
// and how to mend it, and never the password; it ends if that will not change
// by itself, and else tries again. TestSecurity has what a real broker refuses.
func TestWrongWorlds(t *testing.T) {
	t.Parallel()
	const login = "sasl: {mechanism: plain, plaintext: true}, username: worker, password: not-to-be-told"
	on := func(opts ...kfake.Opt) func(*testing.T) string {
		return func(t *testing.T) string { t.Helper(); return cluster(t, opts...).ListenAddrs()[0] }
	}
	for name, tc := range map[string]struct {
		broker  func(*testing.T) string
		options string
		args    []string
		ends    bool
		says    []string // "ADDR" is the broker's
	}{
		"no broker":        {broker: func(*testing.T) string { return "127.0.0.1:1" }, says: []string{"ADDR", "connection refused"}},
		"no such host":     {broker: func(*testing.T) string { return "kafka.invalid:9092" }, says: []string{"kafka.invalid", "orders"}},
		"something else":   {broker: mute, says: []string{"ADDR", "see that Kafka is what listens there"}},
		"another service":  {broker: stranger, says: []string{"ADDR", "is that the port of a Kafka?"}},
		"no authority":     {broker: mute, options: "tls: {ca: nope.pem}", ends: true, says: []string{"tls.ca", "nope.pem"}},
		"no certificate":   {broker: mute, options: "tls: {cert: nope.pem, key: nope-key.pem}", ends: true, says: []string{"tls.cert, tls.key", "nope.pem"}},
		"no password file": {broker: on(kfake.EnableSASL()), options: "sasl: {mechanism: plain, plaintext: true}, username: worker, password_file: nope.txt", ends: true, says: []string{"password_file", "nope.txt"}},
		"unheard login":    {broker: on(kfake.EnableSASL()), options: login, says: []string{"ADDR", "see sasl, username and password"}},
		"missing, to make": {broker: on(), args: []string{"--set=consumers.c.topic=missing", "--set=topology=verify"}, ends: true, says: []string{`topic "missing"`, "does not exist: create it, or set topology to declare"}},
		"missing":          {broker: on(), args: []string{"--set=consumers.c.topic=missing", "--set=topology=off"}, says: []string{`topic "missing"`, "does not exist: create it, or set topology to declare", "next_try"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := tc.broker(t)
			s := newSite(t, fmt.Sprintf("{brokers: [%q], session_timeout: 3s, %s}", addr, tc.options), "orders", "charge")
			p := s.start("one", tc.args...)
			for _, text := range tc.says {
				p.tells(strings.ReplaceAll(text, "ADDR", addr))
			}
			if tc.ends {
				require.Equal(t, 1, p.exit(), "%s", &p.out)
			} else {
				p.stop()
			}
			require.NotContains(t, p.out.String(), "not-to-be-told")
			require.NotContains(t, p.out.String(), "router ready")
		})
	}
}

// TestBrokerComesLate: the worker waits for it, and then works.
func TestBrokerComesLate(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
	require.NoError(t, l.Close())
	s := newSite(t, fmt.Sprintf("{brokers: [127.0.0.1:%d], session_timeout: 3s}", port), "orders", "charge")
	p := s.start("one")
	p.saying("connection refused")
	cluster(t, kfake.Ports(port))
	p.saying("router ready")
	p.stop()
}

// TestWorkersOfOneName: of two processes with one static id the first ends, and
// says why; the second has its work.
func TestWorkersOfOneName(t *testing.T) {
	t.Parallel()
	each(t, 2, func(w *world) {
		s := w.site()
		w.o.SessionTimeout = session
		first := s.start("first", "--instance=pod-0")
		first.saying("router ready")
		second := s.start("second", "--instance=pod-0")
		second.saying("router ready")
		require.Equal(w.t, 1, first.exit(), "%s", &first.out)
		require.Contains(w.t, first.out.String(), "give each worker a name of its own (--instance, LEAT_INSTANCE)")
		require.Contains(w.t, first.out.String(), "pod-0")
		w.put(0, values("m", 5)...)
		w.put(1, values("n", 5)...)
		second.until("it has all", func() bool { return s.count(history.Done, "second") == 10 })
		second.stop()
		require.Zero(w.t, s.count(history.Started, "first"))
	})
}

// TestWorkerInAGroupOfSomethingElse is refused by the group's name and protocol.
func TestWorkerInAGroupOfSomethingElse(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 1)
	w.connectGroup()
	p := w.site().start("one")
	p.saying("connect")
	require.Equal(t, 1, p.exit(), "%s", &p.out)
	require.Contains(t, p.out.String(), w.group)
	require.Contains(t, p.out.String(), "take another group")
}
