package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

// Table is everything a file can name. Several tables add up; a name that
// stands twice in one list is an error of [New].
type Table struct {
	Transports []TransportKind
	Stores     []StoreKind
	Middleware []MiddlewareKind
	Handlers   []HandlerKind
}

// Env is what a part gets besides its options.
type Env struct {
	// Name is the service, as the file calls it.
	Name     string
	Instance transport.Instance
	Topology transport.Topology
	// Log is the worker's own.
	Log *slog.Logger
}

// TransportKind is a kind of broker.
type TransportKind struct {
	// Kind is the key in YAML, and the scheme of the kind's URL.
	Kind string
	// Schemes are further schemes of the same kind.
	Schemes []string
	// Example is a URL of the kind.
	Example string
	// Doc is one line for `list transports`.
	Doc string
	// Options points to the struct of options, for `schema`; nil: not told.
	Options any
	// Open makes a transport and connects to nothing: its error is about the
	// options alone, best made by [config.Component.Decode] or Errorf.
	Open func(Env, config.Component) (transport.Transport, error)
}

// StoreKind is a kind of store for dedup keys. One that is called as a
// transport keeps the keys of that broker's consumers where the file names no
// store.
type StoreKind struct {
	Kind    string
	Schemes []string
	Doc     string
	// PerProcess says that no other process sees the store.
	PerProcess bool
	Options    any // as in [TransportKind]
	// Check looks at the options and opens nothing. The opener it returns is
	// called when keys are first asked for, and again after an error; one
	// marked by [transport.Refuse] before any message was taken ends the worker.
	Check func(Env, config.Component) (OpenStore, error)
}

// OpenStore opens a store. The second result closes it.
type OpenStore func(ctx context.Context) (middleware.DedupStore, func() error, error)

// MiddlewareKind is a link that `use:` and `wrap:` can name, or one of the
// standard chain.
type MiddlewareKind struct {
	Name string
	Doc  string
	// Option is the option of a consumer by which a link of the standard chain
	// is configured. Such a link has no Build, is listed, and is refused under
	// use and wrap.
	Option  string
	Options any // as in [TransportKind]
	// Build makes the link for one place in the file, and starts nothing.
	Build func(Env, config.Component) (message.HandlerMiddleware, error)
}

// HandlerKind is a handler that `handler:` can name.
type HandlerKind struct {
	Name    string
	Doc     string
	Options any // as in [TransportKind]
	// Build makes the handler for one consumer, and starts nothing.
	Build func(Env, config.Component) (message.HandlerFunc, error)
}

func (t *Table) add(o Table) {
	t.Transports = append(t.Transports, o.Transports...)
	t.Stores = append(t.Stores, o.Stores...)
	t.Middleware = append(t.Middleware, o.Middleware...)
	t.Handlers = append(t.Handlers, o.Handlers...)
}

// check refuses a name that stands for two things.
func (t *Table) check() error {
	for what, names := range map[string][]string{
		"transport": t.transportNames(), "store": t.storeNames(),
		"middleware": names(t.Middleware, middlewareName), "handler": names(t.Handlers, handlerName),
	} {
		slices.Sort(names)
		for i, name := range names {
			if i > 0 && name == names[i-1] {
				return fmt.Errorf("%s %q is registered twice", what, name)
			}
		}
	}
	return nil
}

func (t *Table) known() config.Known {
	return config.Known{
		Transports: t.transportNames(), Stores: t.storeNames(),
		Handlers: names(t.Handlers, handlerName), Middleware: names(t.Middleware, middlewareName),
	}
}

// open makes the transport of a broker.
func (t *Table) open(env Env, c config.Component) (transport.Transport, error) {
	kind := t.transport(c.Kind)
	if kind == nil {
		return nil, at(c, t.known().NoTransport(c.Kind))
	}
	opened, err := kind.Open(env, c)
	return opened, at(c, err)
}

func (t *Table) transport(kind string) *TransportKind {
	return find(t.Transports, func(k TransportKind) bool { return k.Kind == kind || slices.Contains(k.Schemes, kind) })
}

func (t *Table) store(kind string) *StoreKind {
	return find(t.Stores, func(k StoreKind) bool { return k.Kind == kind || slices.Contains(k.Schemes, kind) })
}

func (t *Table) middleware(name string) *MiddlewareKind {
	return find(t.Middleware, func(k MiddlewareKind) bool { return k.Name == name })
}

func (t *Table) handler(name string) *HandlerKind {
	return find(t.Handlers, func(k HandlerKind) bool { return k.Name == name })
}

// A list without entries is not nil: config takes nil for unknown.
func (t *Table) transportNames() []string {
	out := []string{}
	for _, k := range t.Transports {
		out = append(append(out, k.Kind), k.Schemes...)
	}
	return out
}

func (t *Table) storeNames() []string {
	out := []string{}
	for _, k := range t.Stores {
		out = append(append(out, k.Kind), k.Schemes...)
	}
	return out
}

func handlerName(k HandlerKind) string       { return k.Name }
func middlewareName(k MiddlewareKind) string { return k.Name }

func names[K any](kinds []K, name func(K) string) []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = name(k)
	}
	return out
}

func find[K any](kinds []K, is func(K) bool) *K {
	if i := slices.IndexFunc(kinds, is); i >= 0 {
		return &kinds[i]
	}
	return nil
}
