package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// Worker is one configuration with its brokers, stores and consumers. It is
// made by [New] and run once.
type Worker struct {
	options

	cfg        *config.Config
	env        Env
	warnings   []config.Problem
	transports map[string]transport.Transport // by the entry's name, "" for the main one
	stores     map[string]*store              // by the broker's name
	router     *runtime.Router

	began    time.Time
	url      string                   // where HTTP listens; empty: nowhere
	metrics  http.Handler             // of /metrics; nil where they go elsewhere
	watched  map[string]*watchedStore // by consumer
	exported *sdktrace.TracerProvider // nil where the file asks for no traces

	mu     sync.Mutex
	closed bool
	opened []part
}

// part is something to be closed.
type part struct {
	name  string
	close func(context.Context) error
}

// closeTimeout bounds the closing of one part.
const closeTimeout = 5 * time.Second

// New reads the configuration and builds everything it names. It connects to
// nothing and starts nothing.
//
// What is wrong with the configuration is a [*config.Error] that holds all of it.
func New(opts ...Option) (*Worker, error) {
	o, err := gather(opts)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		options: o, cfg: cfg,
		env:        Env{Name: cfg.Name, Instance: o.instance, Topology: transport.Topology(cfg.Topology), Log: o.log},
		transports: map[string]transport.Transport{}, stores: map[string]*store{},
		began: time.Now(), watched: map[string]*watchedStore{},
	}
	if err := w.build(); err != nil {
		return nil, errors.Join(err, w.Close(context.Background()))
	}
	return w, nil
}

func gather(opts []Option) (options, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if o.instance.ID == "" {
		o.instance = transport.Instance{ID: defaultInstance()}
	}
	return o, o.table.check()
}

func defaultInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}

// Run consumes until ctx ends and the running attempts have finished, or until
// a broker or store refuses before the worker was ready. Then it closes
// everything. HTTP is served where the file says an address; without one, only
// the command listens by itself. After a stop that took longer than the drain timeout the error
// is [runtime.ErrDrainTimeout].
func (w *Worker) Run(ctx context.Context) error {
	err := w.start(ctx)
	if err == nil {
		err = w.router.Run(ctx)
	}
	return errors.Join(err, w.Close(ctx))
}

func (w *Worker) start(ctx context.Context) error {
	if err := w.listen(ctx); err != nil {
		return err
	}
	if err := w.startTraces(ctx); err != nil {
		return err
	}
	return w.openStores(ctx)
}

// openStores tries each store once. One that refuses ends the worker; for one
// that cannot be reached, messages will wait.
func (w *Worker) openStores(ctx context.Context) error {
	for name, s := range w.stores {
		_, err := s.get(ctx)
		switch {
		case transport.Refused(err):
			return fmt.Errorf("dedup store: %w", err)
		case err != nil && ctx.Err() == nil:
			w.log.WarnContext(ctx, "dedup store cannot be reached, messages will wait for it", "broker", name, "error", err)
		}
	}
	return nil
}

// Close closes what New and Run have opened, the last first. It is for a
// worker that is not run, and may be called twice.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	var errs []error
	for _, p := range slices.Backward(w.opened) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		if err := p.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: close: %w", p.name, err))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// onClose has something closed.
func (w *Worker) onClose(name string, fn func(context.Context) error) {
	w.opened = append(w.opened, part{name, fn})
}

// Router is the engine, for its status, readiness and idleness, and for
// consumers that are not in the file.
func (w *Worker) Router() *runtime.Router { return w.router }

// Transport is a broker of the configuration by the name of its entry, "" for
// the main one; nil if there is none of that name.
func (w *Worker) Transport(name string) transport.Transport { return w.transports[name] }

// Warnings is what lint has to say of a configuration that works.
func (w *Worker) Warnings() []config.Problem { return w.warnings }
