package brokertest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is one connection through a Proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	dead   chan struct{} // closed when it was reset

	mu     sync.Mutex
	broker net.Conn // nil until connected
}

// piece is what one read has brought.
type piece struct {
	data []byte
	err  error
	due  time.Time
}

// run lives as long as the connection.
func (l *link) run() {
	defer l.proxy.forget(l)
	if !l.pass() {
		return
	}
	broker, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.proxy.target)
	if err != nil {
		l.reset()
		return
	}
	l.mu.Lock()
	l.broker = broker
	l.mu.Unlock()
	select {
	case <-l.dead: // while it was dialled
		abort(broker)
		return
	default:
	}
	var ways sync.WaitGroup
	ways.Go(func() { l.carry(ToBroker, l.client, broker) })
	ways.Go(func() { l.carry(ToClient, broker, l.client) })
	ways.Wait()
	_ = l.client.Close()
	_ = broker.Close()
}

// carry takes one way's bytes from one side to the other, in order.
func (l *link) carry(dir Direction, from, to net.Conn) {
	pieces := make(chan piece, 64) // what is under way while there is latency
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			select {
			case pieces <- piece{data: buffer[:n], err: err, due: l.proxy.due()}:
			case <-l.dead:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for p := range pieces {
		if !l.wait(p.due) || !l.pass() {
			return
		}
		allowed := l.proxy.take(dir, len(p.data))
		if _, err := to.Write(p.data[:allowed]); err != nil {
			l.reset()
			return
		}
		switch {
		case allowed < len(p.data):
			l.proxy.resetAll()
			return
		case errors.Is(p.err, io.EOF):
			_ = to.(*net.TCPConn).CloseWrite()
		case p.err != nil:
			l.reset()
		}
	}
}

// pass waits while the proxy is stalled; false if the link is dead.
func (l *link) pass() bool {
	for {
		gate := l.proxy.gate()
		select {
		case <-l.dead:
			return false
		case <-gate:
			return true
		}
	}
}

// wait waits until a time; false if the link is dead.
func (l *link) wait(until time.Time) bool {
	d := time.Until(until)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.dead:
		return false
	case <-timer.C:
		return true
	}
}

// reset ends the connection at once, as a reset to both sides.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.dead:
		return
	default:
		close(l.dead)
	}
	abort(l.client)
	if l.broker != nil {
		abort(l.broker)
	}
}

// abort closes with a reset.
func abort(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}
