package worker

import (
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// Option is a part of a worker, for [New] and [Main].
type Option func(*options)

type options struct {
	table    Table
	config   config.Options
	instance transport.Instance
	log      *slog.Logger
	listen   string // for HTTP, where the file does not say; empty: not at all
	meters   metric.MeterProvider
	tracers  trace.TracerProvider
}

// Parts adds what a file can name. The built-in ones are builtin.All.
func Parts(t Table) Option {
	return func(o *options) { o.table.add(t) }
}

// Handle names a handler for `handler:`: any Watermill handler, or what
// handlers.JSON makes of a typed function.
func Handle(name string, h message.HandlerFunc) Option {
	return Parts(Table{Handlers: []HandlerKind{{
		Name: name, Doc: "of this program", Options: &struct{}{},
		Build: func(_ Env, c config.Component) (message.HandlerFunc, error) { return h, noOptions(c) },
	}}})
}

// Use names a middleware for `use:` and `wrap:`.
func Use(name string, m message.HandlerMiddleware) Option {
	return Parts(Table{Middleware: []MiddlewareKind{{
		Name: name, Doc: "of this program", Options: &struct{}{},
		Build: func(_ Env, c config.Component) (message.HandlerMiddleware, error) { return m, noOptions(c) },
	}}})
}

// noOptions refuses options of a part that takes none.
func noOptions(c config.Component) error { return c.Decode(&struct{}{}) }

// File names the configuration; later files overlay earlier ones. Default:
// worker.yaml. [Main] has -c for it.
func File(paths ...string) Option {
	return func(o *options) { o.config.Files = append(o.config.Files, paths...) }
}

// Config says where the configuration comes from, where files alone do not.
// It takes the place of an earlier Config or [File].
func Config(c config.Options) Option {
	return func(o *options) { o.config = c }
}

// Instance names this process, so that after a restart it takes back at once
// what it held. No two living processes may share a name. Default: host, pid
// and a random part, which takes nothing back.
func Instance(id string) Option {
	return func(o *options) { o.instance = transport.Instance{ID: id, Set: true} }
}

// Log is where the worker logs. Default: discarded; [Main] logs to standard error.
func Log(l *slog.Logger) Option {
	return func(o *options) { o.log = l }
}
