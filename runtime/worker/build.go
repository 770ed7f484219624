package worker

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
)

// build makes everything that the configuration names, or says all that is
// wrong with it.
func (w *Worker) build() error {
	errs := w.buildTransports()
	problems, warnings := w.cfg.Lint(w.facts())
	w.warnings = warnings
	if len(problems) > 0 {
		errs = append(errs, &config.Error{Problems: problems})
	}
	for _, err := range []error{w.buildMetrics(), w.buildTraces()} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	w.router = runtime.NewRouter(runtime.Options{
		Instance: w.instance, Topology: w.env.Topology, DrainTimeout: w.cfg.DrainTimeout.Std(), Log: w.log,
		MeterProvider: w.meters, TracerProvider: w.tracers,
	})
	for i := range w.cfg.Consumers {
		c := &w.cfg.Consumers[i]
		b := &builder{Worker: w, c: c, t: w.transports[c.Broker]}
		h, p := b.build()
		switch {
		case len(b.errs) > 0:
			errs = append(errs, b.errs...)
		case len(errs) == 0: // what lint refuses, the router need not refuse again
			if err := w.router.Consume(c.Name, b.t, c.Topics[0], h, p); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return config.Join(errs...)
}

func (w *Worker) buildTransports() (errs []error) {
	names := slices.Sorted(maps.Keys(w.cfg.Brokers))
	if !w.cfg.Broker.IsZero() {
		names = append([]string{""}, names...)
	}
	for _, name := range names {
		c := w.cfg.BrokerOf(name)
		if w.table.transport(c.Kind) == nil {
			continue // lint says so
		}
		t, err := w.table.open(w.env, c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.transports[name] = t
		w.onClose(c.String(), t.Close)
	}
	return errs
}

// facts is what lint needs to know of the parts.
func (w *Worker) facts() config.Facts {
	f := config.Facts{Known: w.table.known(), Brokers: map[string]config.BrokerFacts{}}
	for name, t := range w.transports {
		f.Brokers[name] = brokerFacts(t.Capabilities())
	}
	if k := w.table.store(w.cfg.Store.Kind); k != nil {
		f.StorePerProcess = k.PerProcess
	}
	return f
}

func brokerFacts(c transport.Capabilities) config.BrokerFacts {
	return config.BrokerFacts{
		KeyOrderScope: string(c.KeyOrder),
		Networked:     c.Networked,
		SQL:           c.SQL,
		MaxName:       c.MaxNameLength,
		DerivesNames:  c.DerivesNames,
		NeedsReader:   c.NeedsReader,
		AckTimeout:    config.Duration(c.AckTimeout),
	}
}

// builder makes one consumer.
type builder struct {
	*Worker

	c    *config.Consumer
	t    transport.Transport // nil where its broker could not be made
	errs []error
}

func (b *builder) build() (message.HandlerFunc, transport.Policy) {
	p, err := policyOf(b.c)
	b.fail(err)
	if b.c.PublishTo.Broker != "" {
		p.Output = b.transports[b.c.PublishTo.Broker]
	}
	p.Wrap, p.Use = b.chain(b.c.Wrap), b.chain(b.c.Use)
	p.Dedup = b.dedup()
	p.Middleware = middleware.Default(p)
	return b.handler(), p
}

func (b *builder) fail(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

func (b *builder) handler() message.HandlerFunc {
	kind := b.table.handler(b.c.Handler.Kind)
	if kind == nil {
		return nil // lint says so
	}
	h, err := kind.Build(b.env, b.c.Handler)
	if h == nil && err == nil {
		err = fmt.Errorf("handler %q is nil in Go: the program registers the name without a function", kind.Name)
	}
	b.fail(at(b.c.Handler, err))
	return h
}

func (b *builder) chain(links []config.Component) []message.HandlerMiddleware {
	var chain []message.HandlerMiddleware
	for _, c := range links {
		kind := b.table.middleware(c.Kind)
		switch {
		case kind == nil:
			continue // lint says so
		case kind.Build == nil:
			b.fail(at(c, fmt.Errorf("%q has its own place in the chain; set the option %s", kind.Name, kind.Option)))
			continue
		}
		link, err := kind.Build(b.env, c)
		if link == nil && err == nil {
			err = fmt.Errorf("middleware %q is nil in Go: the program registers the name without a function", kind.Name)
		}
		b.fail(at(c, err))
		chain = append(chain, link)
	}
	return chain
}

func (b *builder) dedup() message.HandlerMiddleware {
	if b.c.Dedup == nil {
		return nil
	}
	s, err := b.storeOf(b.c.Broker)
	if s == nil {
		b.fail(err)
		return nil
	}
	watched := &watchedStore{DedupStore: s}
	b.watched[b.c.Name] = watched
	link, err := middleware.Dedup(middleware.DedupOptions{
		Key: b.c.Dedup.Key, Window: b.c.Dedup.Window.Std(), Store: watched,
		Log: b.log.With("consumer", b.c.Name),
	})
	if err != nil {
		b.fail(fmt.Errorf("consumers.%s: %w", b.c.Name, err))
	}
	return link
}

// storeOf finds or makes the store for the consumers of a broker: the one the
// file names, else the broker itself.
func (w *Worker) storeOf(broker string) (*store, error) {
	c := w.cfg.Store
	if c.IsZero() {
		c = w.cfg.BrokerOf(broker)
	} else {
		broker = ""
	}
	if s := w.stores[broker]; s != nil {
		return s, nil
	}
	kind := w.table.store(c.Kind)
	if kind == nil {
		return nil, nil // lint says so
	}
	open, err := kind.Check(w.env, c)
	if err != nil {
		return nil, at(c, err)
	}
	s := &store{open: open}
	w.stores[broker] = s
	w.onClose("dedup store "+c.String(), s.Close)
	return s, nil
}

// at gives an error that has no position that of the component it is about.
func at(c config.Component, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return err
	}
	if c.Path() == "" { // it does not come from a file
		return c.Errorf("", "%v", err)
	}
	return c.Errorf("", "%s: %v", c.Path(), err)
}
