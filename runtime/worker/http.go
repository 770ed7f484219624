package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/leat-io/leat/config"
)

// Bounds on what a client can cost us.
const (
	headerTimeout  = 5 * time.Second
	answerTimeout  = 5 * time.Second // see [Worker.endpoints]
	writeTimeout   = 15 * time.Second
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	maxConnections = 64
)

// defaultPorts is how many ports a worker tries from that of
// [config.DefaultListen] on, where the file names none. They are few and known,
// so that `healthcheck` can ask all of them which of them is its worker.
const defaultPorts = 20

// listenByDefault has a worker listen whose file does not say where.
func listenByDefault(o *options) { o.listen = config.DefaultListen }

// listen begins to serve HTTP, if the file or the command asks for it.
func (w *Worker) listen(ctx context.Context) error {
	var l net.Listener
	var err error
	switch at := w.cfg.HTTP.Listen; {
	case w.url != "", at == config.Off, at == "" && w.options.listen == "":
		return nil
	case at == "":
		l, err = listenNear(ctx, w.options.listen)
	default:
		l, err = listenOn(ctx, at)
	}
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	local := isLoopback(l.Addr())
	if !local {
		w.log.WarnContext(ctx, "health, status and metrics can be read by whoever reaches this address", "address", l.Addr().String())
	}
	server := &http.Server{
		Handler:           w.endpoints(local),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
	}
	w.url = "http://" + l.Addr().String()
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(&limitedListener{Listener: l, most: maxConnections})
	}()
	// The first to be opened is the last to be closed: that the worker drains
	// can be seen to its end.
	w.opened = slices.Insert(w.opened, 0, part{"http", func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil {
			err = server.Close() // a client that does not let go is no failure of ours
		}
		if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return err
	}})
	return nil
}

func listenOn(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", address)
}

// listenNear takes the first free one of the default ports, else any.
func listenNear(ctx context.Context, first string) (net.Listener, error) {
	for _, address := range append(nearby(first), net.JoinHostPort(hostOf(first), "0")) {
		l, err := listenOn(ctx, address)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return nil, syscall.EADDRINUSE
}

// nearby is the default ports.
func nearby(first string) []string {
	host, text, _ := net.SplitHostPort(first)
	port, _ := strconv.Atoi(text)
	out := make([]string, defaultPorts)
	for i := range out {
		out[i] = net.JoinHostPort(host, strconv.Itoa(port+i))
	}
	return out
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// limitedListener closes the oldest connection where there would be more than a
// number of them: no client can have the worker hold more, and none that sits on
// its connections keeps a probe away.
type limitedListener struct {
	net.Listener

	most int
	mu   sync.Mutex
	open []*limitedConn // the oldest first
}

func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	lc := &limitedConn{Conn: c, in: l}
	l.mu.Lock()
	l.open = append(l.open, lc)
	var oldest *limitedConn
	if len(l.open) > l.most {
		oldest = l.open[0]
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return lc, nil
}

func (l *limitedListener) forget(c *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(o *limitedConn) bool { return o == c })
}

type limitedConn struct {
	net.Conn

	in *limitedListener
}

func (c *limitedConn) Close() error {
	c.in.forget(c)
	return c.Conn.Close()
}
