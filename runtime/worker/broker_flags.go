package worker

import (
	"fmt"
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// brokerFlags say which broker a command works on.
type brokerFlags struct {
	fileFlags

	Broker string `placeholder:"NAME|URL" help:"An entry under brokers:, or a URL in place of the file's broker. With a URL no file is needed."`
}

func (f *brokerFlags) isURL() bool { return strings.Contains(f.Broker, "://") }

// entry is the name that consumers call the broker by, "" for the main one.
func (f *brokerFlags) entry() string {
	if f.isURL() {
		return ""
	}
	return f.Broker
}

// unsigned takes user and password from what was meant as a URL.
func unsigned(s string) string {
	if _, rest, ok := strings.Cut(s, "@"); ok {
		return "***@" + rest
	}
	return s
}

// open makes the broker's transport. There is no configuration where a URL
// stands alone.
func (f *brokerFlags) open(p *process) (transport.Transport, *config.Config, error) {
	flags := f.fileFlags
	if f.isURL() && len(flags.Config) > 0 {
		flags.Set = append(flags.Set, "broker="+f.Broker)
	}
	o, err := gather(p.with(flags.option()))
	if err != nil {
		return nil, nil, err
	}
	env := Env{Topology: transport.TopologyDeclare, Instance: o.instance, Log: o.log}
	if f.isURL() && len(flags.Config) == 0 {
		scheme, _, _ := strings.Cut(f.Broker, "://")
		t, err := o.table.open(env, config.Component{Kind: strings.ToLower(scheme), URL: config.NewSecret(f.Broker), Dir: "."})
		return t, nil, err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return nil, nil, err
	}
	component := cfg.BrokerOf(f.entry())
	if component.IsZero() {
		return nil, nil, usageError(fmt.Sprintf("--broker %q: there is no such entry under brokers; a URL begins with its kind, as sqlite://", unsigned(f.entry())))
	}
	env.Name, env.Topology = cfg.Name, transport.Topology(cfg.Topology)
	t, err := o.table.open(env, component)
	return t, cfg, err
}
