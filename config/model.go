package config

import (
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// The topology modes.
const (
	TopologyDeclare = "declare" // create what is missing, never change what is there
	TopologyVerify  = "verify"  // only check
	TopologyOff     = "off"     // trust
)

// Off turns off what can be.
const Off = "off"

// TracesOTLP exports spans by OTLP over HTTP.
const TracesOTLP = "otlp"

// DefaultName is the name of a worker whose file gives none.
const DefaultName = "worker"

// DefaultListen is where HTTP listens where the file does not say; it is given up for a free port if it is taken.
const DefaultListen = "127.0.0.1:9610"

// Config is a whole configuration, with every default filled in.
type Config struct {
	// Name is the service; it begins the default names of groups. Defaults to worker.
	Name string `yaml:"name"`
	// Broker is the main broker. It may be left out where every consumer names one of Brokers.
	Broker Component `yaml:"broker"`
	// Brokers are further ones, by the names that consumers call them.
	Brokers map[string]Component `yaml:"brokers"`
	// Store keeps dedup keys. Zero means the consumer's own broker, where that is SQL.
	Store Component `yaml:"store"`
	// Defaults is what consumers inherit, field by field; lists replace.
	Defaults Policy `yaml:"defaults"`
	// Consumers are in the file's order, each with Defaults applied.
	Consumers Consumers `yaml:"consumers"`
	// Topology is declare, verify or off. Defaults to declare.
	Topology string `yaml:"topology" enum:"declare,verify,off"`
	// HTTP is the endpoint for health, status and metrics.
	HTTP HTTP `yaml:"http"`
	// Telemetry is what else tells of the worker.
	Telemetry Telemetry `yaml:"telemetry"`
	// DrainTimeout is how long running attempts may take to finish at shutdown. Defaults to 25s.
	DrainTimeout Duration `yaml:"drain_timeout" min:"1ms"`

	root *node
}

// HTTP says where health, status and metrics are served.
type HTTP struct {
	// Listen is host:port, or off. Empty means that the file does not say: 127.0.0.1:9610, or a free port if that is taken.
	Listen string `yaml:"listen"`
}

// Telemetry says what is told of a worker besides its metrics, which HTTP serves.
type Telemetry struct {
	// Traces is otlp or off. With otlp, each attempt and each message published is a span, exported as the OTEL_* variables of
	// the environment say: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER and so on. Defaults to off.
	Traces string `yaml:"traces" enum:"otlp,off"`
}

// Validate checks that Listen is an address.
func (h HTTP) Validate() error {
	if h.Listen == "" || h.Listen == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(h.Listen)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n > 65535 {
		return OptionErrorf("listen", `not an address; write host:port, like "127.0.0.1:9610", or off`)
	}
	return nil
}

// BrokerOf returns the broker a name stands for: one of Brokers, or the main one for "".
func (c *Config) BrokerOf(name string) Component {
	if name == "" {
		return c.Broker
	}
	return c.Brokers[name]
}

func newConfig(root *node) *Config {
	return &Config{
		Name:         DefaultName,
		Topology:     TopologyDeclare,
		Telemetry:    Telemetry{Traces: Off},
		DrainTimeout: Duration(25 * time.Second),
		Defaults:     defaultPolicy(),
		root:         root,
	}
}

// decode fills the configuration in two steps, since a consumer is decoded over the decoded defaults.
func (c *Config) decode(r *report) {
	d := newDecoder(r)
	d.structure(c.root, reflect.ValueOf(c).Elem(), "")
	c.checkEntries(d, "brokers")
	c.checkEntries(d, "consumers")
	c.Consumers = c.consumers(d)
	d.missing(c.root, "consumers", c.root.at, "consumers", "consumers is missing; write at least one, with its topic and handler")
	if c.Consumers == nil || slices.ContainsFunc(c.Consumers, func(consumer Consumer) bool { return consumer.Broker == "" }) {
		d.missing(c.root, "broker", c.root.at, "broker", "broker is missing; write one, like broker: sqlite://worker.db")
	}
}

// entryName is what a consumer or broker entry may be called: it becomes part of group names and metric labels.
var entryName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

func (c *Config) checkEntries(d *decoder, section string) {
	entries := c.root.get(section)
	if entries == nil {
		return
	}
	for _, f := range entries.fields {
		if !entryName.MatchString(f.key) {
			d.add(f.at, child(section, f.key), "%s: the name %q may hold only letters, digits, '.', '_' and '-'", section, clip(f.key))
		}
	}
}
