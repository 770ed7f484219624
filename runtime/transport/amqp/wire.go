package amqp

import (
	"net"
	"sync"
	"time"
)

// deadlined bounds each write, so that a peer that reads no more is noticed by
// those who write, too. The client library writes every frame by itself;
// deadlined can hold them back to write many at once.
type deadlined struct {
	net.Conn
	timeout time.Duration

	mu    sync.Mutex
	corks int
	held  []byte
}

// mostHeld is how much is held back.
const mostHeld = 64 << 10

func (d *deadlined) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.corks > 0 {
		d.held = append(d.held, b...)
		if len(d.held) < mostHeld {
			return len(b), nil
		}
		return len(b), d.flush()
	}
	return d.write(b)
}

// cork holds writes back until uncork, or until they are many.
func (d *deadlined) cork() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.corks++
}

// uncork writes what was held back. If it fails, whoever reads finds out.
func (d *deadlined) uncork() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.corks--; d.corks == 0 && d.flush() != nil {
		_ = d.Close()
	}
}

// flush writes what is held. mu is held.
func (d *deadlined) flush() error {
	if len(d.held) == 0 {
		return nil
	}
	_, err := d.write(d.held)
	if d.held = d.held[:0]; cap(d.held) > 2*mostHeld {
		d.held = nil
	}
	return err
}

func (d *deadlined) write(b []byte) (int, error) {
	if err := d.SetWriteDeadline(time.Now().Add(d.timeout)); err != nil {
		return 0, err
	}
	return d.Conn.Write(b)
}
