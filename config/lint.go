package config

import (
	"slices"
	"strings"
)

// Facts are what Lint needs to know of the parts that are linked into the worker.
type Facts struct {
	Known
	// Brokers are the facts of each broker entry by its name, "" for the main one. Rules are skipped for a missing entry.
	Brokers map[string]BrokerFacts
	// StorePerProcess says that the configured store is seen by one process only.
	StorePerProcess bool
}

// Known are the kinds there are. A nil list is not checked.
type Known struct {
	Transports, Stores, Handlers, Middleware []string
}

// BrokerFacts are declared by the transport of a broker.
type BrokerFacts struct {
	// KeyOrderScope is how far the order of a key is kept: group, worker, or empty for not at all.
	KeyOrderScope string
	// Networked says that several machines share this broker.
	Networked bool
	// SQL says that the broker can keep dedup keys itself.
	SQL bool
	// DerivesNames says that the transport makes names of its own from topic and group ({topic}--{group}).
	DerivesNames bool
	// NeedsReader says that what is published to a topic is refused while no group reads it.
	NeedsReader bool
	// AckTimeout is after how long the broker takes back what is not settled; 0 means never.
	AckTimeout Duration
	// MaxName bounds the length of a topic's name; 0 means 249.
	MaxName int
}

// The scopes of order.
const (
	ScopeGroup  = "group"
	ScopeWorker = "worker"
)

// linter holds what the rules look at.
type linter struct {
	*Config
	Facts
	errs, warnings report
	badName        bool // said already; default groups begin with it
}

// Lint checks what no single option shows: rules between options, names, and what the transports can do.
// Errors make the configuration unusable; warnings are printed. Both are sorted by position. The Config must come from [Load].
func (c *Config) Lint(facts Facts) (errs, warnings []Problem) {
	l := &linter{Config: c, Facts: facts}
	l.kinds()
	l.serviceName()
	l.groups()
	for i := range c.Consumers {
		consumer := &c.Consumers[i]
		l.limits(consumer)
		l.order(consumer)
		l.dedup(consumer)
		l.names(consumer)
		l.held(consumer)
		l.readers(consumer)
	}
	for _, r := range []*report{&l.errs, &l.warnings} {
		for i := range r.problems {
			r.problems[i].Message = redact(l.root, r.problems[i].Message)
		}
	}
	return l.errs.sorted(), l.warnings.sorted()
}

// kinds checks that every component is one there is.
func (l *linter) kinds() {
	l.kind(l.Broker, "transport", l.Transports)
	for _, name := range sortedKeys(l.Config.Brokers) {
		l.kind(l.Config.Brokers[name], "transport", l.Transports)
	}
	l.kind(l.Store, "store", l.Stores)
	for _, chain := range [][]Component{l.Defaults.Wrap, l.Defaults.Use} {
		l.chain(chain)
	}
	for _, consumer := range l.Consumers {
		l.kind(consumer.Handler, "handler", l.Handlers)
		l.chain(consumer.Wrap)
		l.chain(consumer.Use)
	}
}

func (l *linter) chain(middleware []Component) {
	for _, m := range middleware {
		l.kind(m, "middleware", l.Middleware)
	}
}

func (l *linter) kind(c Component, what string, known []string) {
	if c.IsZero() || known == nil || slices.Contains(known, c.Kind) {
		return
	}
	if c.node.referred || c.node.secret {
		l.errs.add(c.node.at, c.path, "%s: the value of the reference names no %s there is; there is: %s", c.path, what, listed(known))
		return
	}
	l.errs.add(c.node.at, c.path, "%s: %s", c.path, unknownKind(what, c.Kind, known))
}

// serviceName checks the name that groups begin with, and warns where services would share groups named worker.*.
func (l *linter) serviceName() {
	if has(l.root, "name") {
		if l.badName = !legalName.MatchString(l.Name) || strings.Contains(l.Name, "--"); l.badName {
			l.errs.add(l.root.get("name").at, "name", "name: %q begins the names of groups; use letters, digits, '.', '_' and '-', and no \"--\"", clip(l.Name))
		}
		return
	}
	for _, broker := range sortedKeys(l.Facts.Brokers) {
		if l.Facts.Brokers[broker].Networked {
			l.warnings.add(l.root.at, "name", "no name on a broker that others share; another service without one would be in the same groups (%s.…): write name: SERVICE", DefaultName)
			return
		}
	}
}

// groups refuses two consumers that would share the messages of one group.
func (l *linter) groups() {
	type reader struct{ broker, topic, group string }
	first := map[reader]string{}
	for _, consumer := range l.Consumers {
		path := "consumers." + consumer.Name
		for _, topic := range consumer.Topics {
			r := reader{l.BrokerOf(consumer.Broker).identity(), topic, consumer.Group}
			switch other, taken := first[r]; {
			case taken && other == consumer.Name:
				l.errs.add(l.at(&consumer, "topics"), path, "%s reads topic %q twice; leave one out", path, topic)
			case taken:
				l.errs.add(l.at(&consumer, "group", "topic", "topics"), path,
					"consumers %s and %s read topic %q with one group, %q, so each would get only some of its messages; give one another group",
					other, consumer.Name, topic, consumer.Group)
			default:
				first[r] = consumer.Name
			}
		}
	}
}

// limits holds the numbers of a consumer against each other.
func (l *linter) limits(c *Consumer) {
	path := "consumers." + c.Name
	if c.Timeout > l.DrainTimeout {
		l.errs.add(l.at(c, "timeout"), path+".timeout",
			"%s: timeout (%s) is longer than drain_timeout (%s), so a shutdown could not wait for an attempt; shorten it, or raise drain_timeout", path, c.Timeout, l.DrainTimeout)
	}
	if c.Prefetch < c.Concurrency {
		l.errs.add(l.at(c, "prefetch", "concurrency"), path+".prefetch",
			"%s: prefetch (%d) is less than concurrency (%d), so some handlers would never run; raise prefetch to at least %d (default 8 × concurrency), or lower concurrency", path, c.Prefetch, c.Concurrency, c.Concurrency)
	}
}
