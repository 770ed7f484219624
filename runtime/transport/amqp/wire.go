package amqp

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"
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

// hearing remembers why nothing more can be read. Who opens a connection may
// only find it closed: a certificate that is refused is said after the handshake.
type hearing struct {
	net.Conn
	failed atomic.Pointer[error]
}

func (h *hearing) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if err != nil {
		h.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// why is a better reason than that the connection is closed, if there is one.
func (h *hearing) why(err error) error {
	if read := h.failed.Load(); read != nil && errors.Is(err, amqp091.ErrClosed) && !errors.Is(*read, io.EOF) {
		return *read
	}
	return err
}
