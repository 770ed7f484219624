package brokertest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// Direction is one of the two ways through a Proxy.
type Direction = transporttest.Direction

// What clients send, and what they are sent.
const (
	ToBroker = transporttest.ToBroker
	ToClient = transporttest.ToClient
)

// TB is what a Proxy uses of a test: also of a case of package transporttest.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(fn func())
	Errorf(format string, args ...any)
	FailNow()
}

var _ transporttest.Link = (*Proxy)(nil)

// Proxy is a [transporttest.Link]: a TCP link to a broker that fails when it is told to. What it is
// told is in force when the method returns, but for what is just being written.
type Proxy struct {
	tb       TB
	target   string
	addr     string
	keepers  []net.Conn // connections of its own, so that the port stays its while it does not listen
	routines sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while cut
	links    map[*link]struct{}
	flowing  chan struct{} // closed unless stalled
	latency  time.Duration
	limits   [2]limit
}

// limit is how many more bytes go one way until all links are reset.
type limit struct {
	set  bool
	left int
}

// NewProxy listens on a port of its own and passes on to target, a host:port.
// It ends with the test.
func NewProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, target: target, addr: "127.0.0.1:0", links: map[*link]struct{}{}, flowing: make(chan struct{})}
	close(p.flowing)
	p.listener = p.listen()
	p.addr = p.listener.Addr().String()
	p.keep()
	p.accept(p.listener)
	tb.Cleanup(func() {
		p.Cut()
		for _, c := range p.keepers {
			_ = c.Close()
		}
		p.routines.Wait()
	})
	return p
}

func (p *Proxy) listen() net.Listener {
	p.tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", p.addr)
	if err != nil {
		p.fatalf("listen: %v", err)
	}
	return l
}

// keep holds on to the port by a connection to it: while it exists, nobody
// else is given the port.
func (p *Proxy) keep() {
	p.tb.Helper()
	client, err := new(net.Dialer).DialContext(p.tb.Context(), "tcp4", p.addr)
	if err != nil {
		p.fatalf("keep the port: %v", err)
	}
	p.keepers = append(p.keepers, client)
	server, err := p.listener.Accept()
	if err != nil {
		p.fatalf("keep the port: %v", err)
	}
	p.keepers = append(p.keepers, server)
}

func (p *Proxy) fatalf(format string, args ...any) {
	p.tb.Helper()
	p.tb.Errorf("proxy of %s: %s", p.target, fmt.Sprintf(format, args...))
	p.tb.FailNow()
}

func (p *Proxy) accept(from net.Listener) {
	p.routines.Go(func() {
		for {
			c, err := from.Accept()
			if err != nil {
				return // it was closed
			}
			l := &link{proxy: p, client: c, dead: make(chan struct{})}
			p.mu.Lock()
			p.links[l] = struct{}{}
			cut := p.listener != from
			p.mu.Unlock()
			if cut {
				l.reset()
			}
			p.routines.Go(l.run)
		}
	})
}

// Addr is where clients connect, a host:port. It stays the same.
func (p *Proxy) Addr() string { return p.addr }

// Cut resets all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	p.resetAll()
}

// Heal ends a Cut.
func (p *Proxy) Heal() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		p.listener = p.listen()
		p.accept(p.listener)
	}
}

// Stall keeps connections, and accepts new ones, but lets nothing through: no
// byte, no end, no reset. To both sides it looks like a network that loses all
// packets; as there, what was sent arrives if it is resumed in time.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default:
	}
}

// Resume ends a Stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// LimitThenReset lets exactly n more bytes through in a direction, of all
// connections together, and at the first byte after them resets all
// connections, once: later ones are whole.
func (p *Proxy) LimitThenReset(dir Direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits[dir] = limit{set: true, left: n}
}

// Latency delays all that is sent from now on, in each direction, without
// making the link narrower. 0 ends it.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// take is how many of n bytes may pass.
func (p *Proxy) take(dir Direction, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.limits[dir]
	if !l.set {
		return n
	}
	if n > l.left {
		n = l.left
		*l = limit{}
		return n
	}
	l.left -= n
	return n
}

func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flowing
}

// due is when what is sent now arrives.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.latency)
}

func (p *Proxy) resetAll() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.reset()
	}
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
