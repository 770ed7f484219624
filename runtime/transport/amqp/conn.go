package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// conn is one connection, with what its handshake told of the broker.
type conn struct {
	*amqp091.Connection
	node    node
	raw     *deadlined
	version version
	blocked atomic.Pointer[string] // why the broker reads nothing of it; nil if it does
	lost    chan struct{}          // closed when the connection has ended
	cause   *amqp091.Error         // why, after lost; nil if we closed it
	trials  chan struct{}          // one for each channel with suspects
}

// version is that of the broker.
type version struct{ major, minor int }

func parseVersion(text string) version {
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var v version
	v.major, _ = strconv.Atoi(major) // 0 for what is no number: an old broker
	v.minor, _ = strconv.Atoi(minor)
	return v
}

func (v version) atLeast(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

// dial tries each node once, until one lets us in. role ends the connection's
// name at the broker. It is refused only where every node refuses: otherwise
// another one may yet come back.
func (t *Transport) dial(ctx context.Context, role string) (*conn, error) {
	var failed []string
	refused := 0
	for _, n := range t.troubles.turns(t.target.nodes) {
		c, err := t.dialNode(ctx, n, role)
		if err == nil {
			if failed != nil {
				t.o.Log.WarnContext(ctx, "connected to another node of the broker", "connection", role, "node", n.address, "not_to", strings.Join(failed, "; "))
			}
			return c, nil
		}
		if ctx.Err() != nil || len(t.target.nodes) == 1 {
			return nil, fmt.Errorf("amqp broker %s, vhost %q: %w", n.address, t.target.vhost, err)
		}
		t.troubles.note(n)
		failed = append(failed, n.address+": "+err.Error())
		if transport.Refused(err) {
			refused++
		}
	}
	err := fmt.Errorf("amqp broker, vhost %q, tried each of its hosts: %s", t.target.vhost, strings.Join(failed, "; "))
	if refused == len(failed) {
		return nil, transport.Refuse(err)
	}
	return nil, err
}

func (t *Transport) dialNode(ctx context.Context, n node, role string) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.ConnectTimeout, fmt.Errorf("no answer within %s", t.o.ConnectTimeout))
	defer cancel()
	c, err := t.handshake(ctx, n, role)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, t.explainLogin(err)
}

func (t *Transport) handshake(ctx context.Context, n node, role string) (*conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", n.address)
	if err != nil {
		return nil, err
	}
	// The client library knows no context: a closed connection ends what it waits for.
	free := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer free()
	c := &conn{node: n, raw: &deadlined{Conn: raw, timeout: 2 * t.o.Heartbeat}, lost: make(chan struct{}), trials: make(chan struct{}, trials)}
	var stream net.Conn = c.raw
	if t.target.secure {
		config, err := t.o.tlsConfig(n.host)
		if err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		secured := tls.Client(stream, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		stream = secured
	}
	properties := amqp091.Table{"product": "leat", "platform": "Go", "connection_name": t.o.Name + " " + role}
	auth, err := t.login(properties)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	heard := &hearing{Conn: stream}
	c.Connection, err = amqp091.Open(heard, amqp091.Config{
		SASL: []amqp091.Authentication{auth}, Vhost: t.target.vhost, Heartbeat: t.o.Heartbeat,
		FrameSize: amqp091.FrameSizeUnlimited, Properties: properties, Locale: "en_US",
	})
	if err != nil {
		_ = raw.Close()
		return nil, heard.why(err)
	}
	if !free() { // too late
		_ = c.Close()
		return nil, context.Cause(ctx)
	}
	text, _ := c.Properties["version"].(string)
	c.version = parseVersion(text)
	go c.watch(c.NotifyClose(make(chan *amqp091.Error, 1)), c.NotifyBlocked(make(chan amqp091.Blocking, 8)), t, role)
	return c, nil
}

// watch notes when the broker stops reading, and the end.
func (c *conn) watch(closed <-chan *amqp091.Error, blocked <-chan amqp091.Blocking, t *Transport, role string) {
	defer close(c.lost)
	for {
		select {
		case c.cause = <-closed:
			if c.cause != nil {
				t.troubles.note(c.node)
			}
			return
		case b, ok := <-blocked:
			switch {
			case !ok:
				blocked = nil
			case b.Active:
				c.blocked.Store(&b.Reason)
				t.o.Log.Warn("broker blocks the connection: it takes nothing more until its alarm ends", "connection", role, "reason", b.Reason)
			default:
				c.blocked.Store(nil)
				t.o.Log.Info("broker takes messages again", "connection", role)
			}
		}
	}
}

// alive tells whether the connection has not ended.
func (c *conn) alive() bool { return !c.IsClosed() }

// why explains the end.
func (c *conn) why() error {
	<-c.lost
	if c.cause == nil {
		return transport.ErrClosed
	}
	return explain(c.cause)
}

// longestEnd bounds the wait for a broker that is to let a connection go. The
// library would wait for as long as the broker's heartbeats come.
const longestEnd = 5 * time.Second

// end closes the connection by the end of ctx at the latest: what the broker
// was not told of by then ends with the socket.
func (c *conn) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestEnd)
	defer cancel()
	cut := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	defer cut()
	deadline, _ := ctx.Deadline()
	err := c.CloseDeadline(deadline)
	_ = c.raw.Close()
	<-c.lost
	if errors.Is(err, amqp091.ErrClosed) {
		return nil
	}
	return err
}
