package brokertest_test

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
)

// echo is a server that sends back what it gets, and ends when its client does.
func echo(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp4", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// quiet requires that nothing comes for a while.
func quiet(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	n, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "%d bytes", n)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
}

func TestProxyPassesOn(t *testing.T) {
	t.Parallel()
	p := brokertest.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	send(t, c, "hello")
	expect(t, c, "hello")
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(c)
	require.NoError(t, err, "the end is passed on as an end")
	require.Empty(t, rest)
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	p := brokertest.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	send(t, c, "hello")
	expect(t, c, "hello")
	for range 3 {
		p.Cut()
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = new(net.Dialer).DialContext(t.Context(), "tcp4", p.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.Heal()
		c = dial(t, p.Addr())
		send(t, c, "again")
		expect(t, c, "again")
	}
}

func TestProxyStalls(t *testing.T) {
	t.Parallel()
	p := brokertest.NewProxy(t, echo(t))
	before := dial(t, p.Addr())
	send(t, before, "one ")
	expect(t, before, "one ")
	p.Stall()
	send(t, before, "two ")
	during := dial(t, p.Addr())
	send(t, during, "three")
	quiet(t, before)
	quiet(t, during)
	p.Resume()
	send(t, before, "four")
	expect(t, before, "two four")
	expect(t, during, "three")

	p.Stall()
	p.Cut()
	_, err := before.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, "a stalled link can be cut")
}

// TestProxyStallHidesAnEnd: the broker does not learn during a stall that its
// client is gone.
func TestProxyStallHidesAnEnd(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := brokertest.NewProxy(t, l.Addr().String())
	client := dial(t, p.Addr())
	broker, err := l.Accept()
	require.NoError(t, err)
	defer broker.Close()
	p.Stall()
	require.NoError(t, client.Close())
	quiet(t, broker)
	p.Resume()
	_, err = broker.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestProxyLimits(t *testing.T) {
	t.Parallel()
	for _, dir := range []brokertest.Direction{brokertest.ToBroker, brokertest.ToClient} {
		p := brokertest.NewProxy(t, echo(t))
		other, c := dial(t, p.Addr()), dial(t, p.Addr())
		send(t, other, "x")
		expect(t, other, "x")
		p.LimitThenReset(dir, 7)
		send(t, c, "1234")
		expect(t, c, "1234")
		send(t, c, "567")
		expect(t, c, "567")
		send(t, c, "8")
		for _, link := range []net.Conn{c, other} {
			_, err := link.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
		c = dial(t, p.Addr())
		send(t, c, "a whole link again")
		expect(t, c, "a whole link again")
	}
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	p := brokertest.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	p.Latency(50 * time.Millisecond)
	began := time.Now()
	for range 20 { // all under way together
		send(t, c, "x")
	}
	expect(t, c, "xxxxxxxxxxxxxxxxxxxx")
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond, "both ways")
	p.Latency(0)
	send(t, c, "y")
	expect(t, c, "y")
}

func TestProxyWithoutBroker(t *testing.T) {
	t.Parallel()
	p := brokertest.NewProxy(t, "127.0.0.1:1")
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp4", p.Addr())
	if err == nil { // else the reset came before the connection was used
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}
